import type { LogEvent } from "../log/port.ts";

const TEXT_FRAME = 0x81;
const EVENT_PREFIX = Buffer.from('{"type":"event",');
/** Frames above this are not kept on the event: a copy of a large envelope would double its memory. In bytes. */
const CACHED_FRAME_LIMIT_BYTES = 8 * 1024;

/** The header of one complete, unmasked text frame (RFC 6455 5.2) of so many payload bytes. */
export function frameHeader(payloadBytes: number): Buffer {
  if (payloadBytes < 126) return Buffer.from([TEXT_FRAME, payloadBytes]);
  if (payloadBytes < 65_536) {
    const header = Buffer.from([TEXT_FRAME, 126, 0, 0]);
    header.writeUInt16BE(payloadBytes, 2);
    return header;
  }
  const header = Buffer.alloc(10);
  header[0] = TEXT_FRAME;
  header[1] = 127;
  header.writeUInt32BE(Math.floor(payloadBytes / 0x1_0000_0000), 2);
  header.writeUInt32BE(payloadBytes % 0x1_0000_0000, 6);
  return header;
}

/** A JSON text as one complete frame. */
export function textFrame(json: string): Buffer {
  const payload = Buffer.from(json);
  return Buffer.concat([frameHeader(payload.length), payload]);
}

/**
 * The event as one complete frame, in one or two parts. The envelope is one JSON object with at least one field, so `type` is spliced in
 * behind its brace; the payload's bytes stay as the agent wrote them (contract, promise 4).
 */
export function eventFrame(event: LogEvent): readonly Uint8Array[] {
  if (event.encoded.frame !== undefined) return [event.encoded.frame];
  const rest = event.envelope.subarray(1);
  const header = frameHeader(EVENT_PREFIX.length + rest.length);
  if (rest.length > CACHED_FRAME_LIMIT_BYTES) return [Buffer.concat([header, EVENT_PREFIX]), rest];
  event.encoded.frame = Buffer.concat([header, EVENT_PREFIX, rest]);
  return [event.encoded.frame];
}
