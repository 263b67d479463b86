/** Of each frame's payload so much is handed over: type, session, seq and event_type come first in our envelope. */
export const HEAD_BYTES = 160;
const LONGEST_HEADER_BYTES = 10;

/** Called for each frame with its first byte, and where the first HEAD_BYTES (or all) of its payload lie. */
export type OnFrame = (firstByte: number, bytes: Buffer, at: number, payloadBytes: number) => void;

interface Head {
  readonly payloadAt: number;
  readonly payloadBytes: number;
  /** Where what is looked at ends; the rest of the payload is skipped. */
  readonly end: number;
}

/** The header of the unmasked frame that starts here; undefined when bytes are missing to see its head. */
function headAt(bytes: Buffer, at: number): Head | undefined {
  const known = bytes.length - at;
  if (known < 2) return undefined;
  const short = (bytes[at + 1] ?? 0) & 0x7f;
  const header = short < 126 ? 2 : short === 126 ? 4 : LONGEST_HEADER_BYTES;
  if (known < header) return undefined;
  const payloadBytes = short < 126 ? short : short === 126 ? bytes.readUInt16BE(at + 2) : bytes.readUIntBE(at + 4, 6);
  const end = at + header + Math.min(payloadBytes, HEAD_BYTES);
  return end <= bytes.length ? { payloadAt: at + header, payloadBytes, end } : undefined;
}

/** Cuts what a WebSocket server sends into frames, in place: payloads are skipped, not copied. */
export function createFrameSplitter(onFrame: OnFrame): (chunk: Buffer) => void {
  let skip = 0;
  let held = Buffer.alloc(0);

  /** Answers where to read on, or undefined when the frame's head is cut off here. */
  function take(bytes: Buffer, at: number): number | undefined {
    const head = headAt(bytes, at);
    if (head === undefined) return undefined;
    onFrame(bytes[at] ?? 0, bytes, head.payloadAt, head.payloadBytes);
    skip = head.payloadBytes - (head.end - head.payloadAt);
    return head.end;
  }

  /** Completes a head that was cut between chunks. Answers how much of the chunk that took. */
  function complete(chunk: Buffer): number {
    const before = held.length;
    const joined = Buffer.concat([held, chunk.subarray(0, LONGEST_HEADER_BYTES + HEAD_BYTES)]);
    const end = take(joined, 0);
    // The memory of a chunk is used again, so what is kept is a copy.
    held = end === undefined ? joined : Buffer.alloc(0);
    return (end ?? joined.length) - before;
  }

  return (chunk) => {
    let at = held.length > 0 ? complete(chunk) : 0;
    while (at < chunk.length) {
      const skipped = Math.min(skip, chunk.length - at);
      skip -= skipped;
      at += skipped;
      if (at >= chunk.length) return;
      const end = take(chunk, at);
      if (end === undefined) {
        held = Buffer.from(chunk.subarray(at));
        return;
      }
      at = end;
    }
  };
}
