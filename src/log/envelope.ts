import type { EventHead } from "../protocol/events.ts";

const CLOSING_BRACE = 0x7d;

/** The envelope around a payload whose bytes go out as they came (PROTOCOL: the order of the fields is the order of EventHead). */
export function spliceEnvelope(head: EventHead, payload: Uint8Array): Uint8Array {
  const text = headText(head);
  const headBytes = Buffer.byteLength(text);
  const totalBytes = headBytes + payload.byteLength + 1;
  // Previews go soon and may share a block of Node's pool; a durable event that stays would keep its whole block alive.
  const envelope = head.preview === true ? Buffer.allocUnsafe(totalBytes) : Buffer.allocUnsafeSlow(totalBytes);
  envelope.write(text, "utf8");
  envelope.set(payload, headBytes);
  envelope[totalBytes - 1] = CLOSING_BRACE;
  return envelope;
}

function headText(head: EventHead): string {
  let text = `{"session_id":${JSON.stringify(head.session_id)},"seq":${head.seq},"event_type":${JSON.stringify(head.event_type)}`;
  text += `,"origin":${JSON.stringify(head.origin)},"source":${JSON.stringify(head.source)},"timestamp_ms":${head.timestamp_ms}`;
  if (head.label !== undefined) text += `,"label":${JSON.stringify(head.label)}`;
  if (head.turn_id !== undefined) text += `,"turn_id":${JSON.stringify(head.turn_id)}`;
  if (head.command_id !== undefined) text += `,"command_id":${JSON.stringify(head.command_id)}`;
  if (head.preview === true) text += `,"preview":true`;
  if (head.echo_of !== undefined) text += `,"echo_of":${head.echo_of}`;
  if (head.redacted !== undefined) text += `,"redacted":${head.redacted}`;
  return `${text},"payload":`;
}
