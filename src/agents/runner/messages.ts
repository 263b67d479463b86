import { isJsonObject, type JsonObject } from "../../protocol/json.ts";
import { createHeldBytes, type HeldBytes } from "../held-bytes.ts";
import { FRAME_BODY_LIMIT_BYTES, type Frame, FrameFault } from "./frames.ts";
import type { Link } from "./link.ts";

/** A call or an answer: JSON, and bytes that need no JSON. */
export interface Message {
  readonly json: JsonObject;
  readonly attachment: Buffer;
}

/** All of one message; a transcript is the largest. */
const MESSAGE_LIMIT_BYTES = 640 * 1024 * 1024;
/** What a message that has only begun costs, however short its pieces are. */
const OPEN_MESSAGE_BYTES = 64 * 1024;
const LENGTH_BYTES = 4;
export const NO_BYTES = Buffer.alloc(0);

/** Sends a message in as many frames as it needs, and lets other frames pass in between. Resolves when the link has taken all. */
export async function sendMessage(
  link: Link,
  kind: "call" | "answer",
  channel: number,
  json: JsonObject,
  attachment: Uint8Array = NO_BYTES,
): Promise<void> {
  const text = Buffer.from(JSON.stringify(json), "utf8");
  const length = Buffer.alloc(LENGTH_BYTES);
  length.writeUInt32BE(text.length);
  // Small messages are one frame, sent before this function returns: calls keep their order.
  const whole = Buffer.concat([length, text, attachment]);
  for (let from = 0; from === 0 || from < whole.length; from += FRAME_BODY_LIMIT_BYTES) {
    const to = from + FRAME_BODY_LIMIT_BYTES;
    link.send({ kind, channel, more: to < whole.length, body: whole.subarray(from, to) });
    if (to < whole.length) await link.ready();
  }
}

/** Joins the frames of messages. */
export interface MessageJoiner {
  /** The message, when this frame was its last. @throws FrameFault */
  push(frame: Frame): Message | undefined;
}

export function createMessageJoiner(): MessageJoiner {
  const open = new Map<number, { readonly held: HeldBytes; bytes: number }>();
  let heldBytes = 0;
  return {
    push({ channel, more, body }) {
      const message = open.get(channel);
      if (message === undefined && !more) return readMessage(body);
      const { held, bytes } = message ?? { held: createHeldBytes(), bytes: OPEN_MESSAGE_BYTES };
      held.add(body);
      heldBytes += body.length + (message === undefined ? OPEN_MESSAGE_BYTES : 0);
      if (heldBytes > MESSAGE_LIMIT_BYTES) throw new FrameFault("frame_too_large");
      if (more) {
        open.set(channel, { held, bytes: bytes + body.length });
        return undefined;
      }
      open.delete(channel);
      heldBytes -= bytes + body.length;
      return readMessage(held.take());
    },
  };
}

function readMessage(whole: Buffer): Message {
  if (whole.length < LENGTH_BYTES) throw new FrameFault("frame_too_short");
  const end = LENGTH_BYTES + whole.readUInt32BE(0);
  if (end > whole.length) throw new FrameFault("frame_too_short");
  return { json: readJson(whole.subarray(LENGTH_BYTES, end)), attachment: whole.subarray(end) };
}

/** @throws FrameFault when the bytes are no JSON object */
export function readJson(bytes: Buffer): JsonObject {
  try {
    const value: unknown = JSON.parse(bytes.toString("utf8"));
    if (isJsonObject(value)) return value;
  } catch {
    // Told below.
  }
  throw new FrameFault("frame_not_json");
}
