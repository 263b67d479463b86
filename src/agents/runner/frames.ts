import { createHeldBytes } from "../held-bytes.ts";

/** Versions of the protocol between server and runner that this program speaks. */
export const PROTOCOL_VERSIONS = { min: 1, max: 1 } as const;
/** Largest body of a frame. Larger messages travel in several. */
export const FRAME_BODY_LIMIT_BYTES = 256 * 1024;

/**
 * What a frame is. hello, welcome and refused open a link; call and answer carry JSON messages; the rest is a run's traffic, and its
 * channel says which run. `taken` says how many bytes of output were handled, `ack` which lines are durable.
 * `ping` says that its sender is there, and asks for nothing.
 */
const KIND_CODES = {
  hello: 1,
  welcome: 2,
  refused: 3,
  call: 4,
  answer: 5,
  output: 6,
  taken: 7,
  ack: 8,
  write: 9,
  written: 10,
  exit: 11,
  ping: 12,
} as const;

export type FrameKind = keyof typeof KIND_CODES;

export interface Frame {
  readonly kind: FrameKind;
  /** A call's id, or a run's channel: an unsigned 32-bit number. */
  readonly channel: number;
  /** The message goes on in the next frame of this kind and channel. */
  readonly more: boolean;
  readonly body: Buffer;
}

export type FrameFaultReason =
  | "frame_too_short"
  | "frame_too_large"
  | "frame_kind_unknown"
  | "frame_flags_unknown"
  | "frame_not_json"
  | "hello_expected"
  | "window_exceeded";

/** Bytes that no peer of ours sends. The link that they came on is of no further use. */
export class FrameFault extends Error {
  readonly reason: FrameFaultReason;

  constructor(reason: FrameFaultReason) {
    super(`The peer sent bytes that are no frame (${reason}).`);
    this.name = "FrameFault";
    this.reason = reason;
  }
}

const KINDS = new Map<number, FrameKind>(
  Object.entries(KIND_CODES).map(([kind, code]) => [code, isFrameKind(kind) ? kind : "refused"]),
);

function isFrameKind(kind: string): kind is FrameKind {
  return kind in KIND_CODES;
}

/** u32 length of all that follows it, u8 kind, u8 flags, u32 channel; big endian. */
const HEADER_BYTES = 10;
const LENGTH_BYTES = 4;
const MORE = 1;
const COUNT_BYTES = 6;

/** A frame's header, with room for what stands at the beginning of its body. `bodyBytes` counts that too. */
export function frameHead(
  { kind, channel, more }: Omit<Frame, "body">,
  bodyBytes: number,
  count: number | undefined,
): Buffer {
  const head = Buffer.allocUnsafe(HEADER_BYTES + (count === undefined ? 0 : COUNT_BYTES));
  head.writeUInt32BE(HEADER_BYTES - LENGTH_BYTES + bodyBytes, 0);
  head[4] = KIND_CODES[kind];
  head[5] = more ? MORE : 0;
  head.writeUInt32BE(channel, 6);
  if (count !== undefined) head.writeUIntBE(count, HEADER_BYTES, COUNT_BYTES);
  return head;
}

/** A whole frame in one buffer. @throws RangeError for a body over the limit */
export function encodeFrame(frame: Frame): Buffer {
  if (frame.body.length > FRAME_BODY_LIMIT_BYTES) throw new RangeError("a frame's body is over its limit");
  return Buffer.concat([frameHead(frame, frame.body.length, undefined), frame.body]);
}

/** The 48-bit number at the beginning of a body. @throws FrameFault frame_too_short */
export function leadingCount(body: Buffer): number {
  if (body.length < COUNT_BYTES) throw new FrameFault("frame_too_short");
  return body.readUIntBE(0, COUNT_BYTES);
}

/** What follows the leading count. */
export function afterCount(body: Buffer): Buffer {
  return body.subarray(COUNT_BYTES);
}

/** The length of the frame that begins here, with its header. @throws FrameFault */
function frameBytes(header: Buffer): number {
  const length = header.readUInt32BE(0);
  if (length < HEADER_BYTES - LENGTH_BYTES) throw new FrameFault("frame_too_short");
  if (length > HEADER_BYTES - LENGTH_BYTES + FRAME_BODY_LIMIT_BYTES) throw new FrameFault("frame_too_large");
  return LENGTH_BYTES + length;
}

function readFrame(bytes: Buffer): Frame {
  const kind = KINDS.get(bytes[4] ?? 0);
  const flags = bytes[5] ?? 0;
  if (kind === undefined) throw new FrameFault("frame_kind_unknown");
  if ((flags & ~MORE) !== 0) throw new FrameFault("frame_flags_unknown");
  return { kind, channel: bytes.readUInt32BE(6), more: flags === MORE, body: bytes.subarray(HEADER_BYTES) };
}

/** Cuts a stream of bytes into frames. Bodies may share the chunks' memory. After a fault it delivers nothing more. */
export function createFrameDecoder(deliver: (frame: Frame) => void): { push(chunk: Buffer): void } {
  const held = createHeldBytes();
  let heldBytes = 0;
  let neededBytes = HEADER_BYTES;

  /** Adds what is missing to what is held. Returns the rest of the chunk, or undefined when the frame is not whole yet. */
  function complete(chunk: Buffer): Buffer | undefined {
    let rest = chunk;
    while (heldBytes > 0) {
      const missing = rest.subarray(0, neededBytes - heldBytes);
      held.add(missing);
      heldBytes += missing.length;
      rest = rest.subarray(missing.length);
      if (heldBytes < neededBytes) return undefined;
      const whole = held.take();
      heldBytes = 0;
      const total = frameBytes(whole);
      if (whole.length === total) {
        neededBytes = HEADER_BYTES;
        deliver(readFrame(whole));
      } else {
        neededBytes = total;
        held.add(whole);
        heldBytes = whole.length;
      }
    }
    return rest;
  }

  return {
    push(chunk) {
      let rest = complete(chunk);
      if (rest === undefined) return;
      while (rest.length >= HEADER_BYTES) {
        const total = frameBytes(rest);
        neededBytes = total;
        if (rest.length < total) break;
        deliver(readFrame(rest.subarray(0, total)));
        rest = rest.subarray(total);
        neededBytes = HEADER_BYTES;
      }
      if (rest.length === 0) return;
      if (rest.length < HEADER_BYTES) neededBytes = HEADER_BYTES;
      held.add(rest);
      heldBytes = rest.length;
    },
  };
}
