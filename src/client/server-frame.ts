import type { Envelope, OpenRequest, SessionState } from "../protocol/events.ts";
import type { ServerFrame } from "../protocol/frames.ts";
import { isJsonObject } from "../protocol/json.ts";
import type { SessionEvent } from "./events.ts";

type Value = Readonly<Record<string, unknown>>;
const isText = (value: unknown): value is string => typeof value === "string";
const isSeq = (value: unknown): value is number => Number.isSafeInteger(value);

/** The fields that this client relies on, by frame type. */
const SHAPES: Readonly<Record<ServerFrame["type"], (frame: Value) => boolean>> = {
  welcome: (frame) =>
    isText(frame["connection_id"]) && isSeq(frame["heartbeat_ms"]) && isJsonObject(frame["principal"]),
  subscribed: (frame) =>
    isText(frame["session_id"]) &&
    isSeq(frame["head"]) &&
    isText(frame["state"]) &&
    Array.isArray(frame["open_requests"]),
  event: (frame) =>
    isText(frame["session_id"]) && isSeq(frame["seq"]) && isText(frame["event_type"]) && "payload" in frame,
  ack: (frame) => isText(frame["id"]) && isSeq(frame["seq"]),
  error: (frame) => isText(frame["code"]) && isText(frame["message"]),
  gap: (frame) => isText(frame["session_id"]) && isSeq(frame["first_available"]),
  session: (frame) => isText(frame["id"]) && isText(frame["state"]),
  ended: (frame) => isText(frame["session_id"]),
  pong: () => true,
};

function isServerFrame(value: unknown): value is ServerFrame {
  if (!isJsonObject(value)) return false;
  const type = value["type"];
  return isText(type) && Object.hasOwn(SHAPES, type) && SHAPES[type as ServerFrame["type"]](value);
}

/** One text frame of the server; undefined for what this version does not know, which is to be ignored. */
export function parseServerFrame(text: unknown): ServerFrame | undefined {
  if (!isText(text)) return undefined;
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    return undefined;
  }
  return isServerFrame(value) ? value : undefined;
}

/** An envelope, as the typed event that its names make of it: payloads are the CLI's and the broker's own, not checked again here. */
export const asEvent = (envelope: Envelope): SessionEvent => envelope as unknown as SessionEvent;

/** What a subscription is told first. */
export interface Subscribed {
  readonly head: number;
  readonly state: SessionState;
  readonly open_requests: readonly OpenRequest[];
  readonly owner?: string;
}
