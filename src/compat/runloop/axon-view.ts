import { isJsonObject, type JsonObject } from "../../protocol/json.ts";
import type { LogEvent } from "../../sessions/port.ts";
import { systemEvent } from "./system-events.ts";

/** The head of an envelope: everything before its payload. */
export interface Head {
  readonly session_id: string;
  readonly seq: number;
  readonly event_type: string;
  readonly origin: string;
  readonly source: string;
  readonly label?: string;
  readonly timestamp_ms: number;
  readonly turn_id?: string;
  readonly echo_of?: number;
}

/** Inside a text of the head its quotes would be escaped, so the first of these is the payload's. */
const PAYLOAD_MARK = Buffer.from(',"payload":');
const QUOTE = 34;
const FRAME_START = Buffer.from("data: ");
const FRAME_END = Buffer.from("\n\n");
/** A larger event is not kept a second time beside its envelope. In bytes. */
const CACHED_LIMIT_BYTES = 8 * 1024;

const isHead = (value: unknown): value is Head =>
  isJsonObject(value) &&
  typeof value["seq"] === "number" &&
  typeof value["timestamp_ms"] === "number" &&
  ["session_id", "event_type", "origin", "source"].every((field) => typeof value[field] === "string");

/** An envelope in its two parts; the payload's bytes are not looked into. */
function openEnvelope({ envelope }: Pick<LogEvent, "envelope">): { head: Head; payload: Buffer } {
  const bytes = Buffer.from(envelope.buffer, envelope.byteOffset, envelope.byteLength);
  const at = bytes.indexOf(PAYLOAD_MARK);
  const head: unknown = JSON.parse(`${bytes.toString("utf8", 0, at)}}`);
  if (!isHead(head)) throw new Error("an event's envelope has no head");
  return { head, payload: bytes.subarray(at + PAYLOAD_MARK.length, -1) };
}

/** What a client published that is not one JSON object or array is kept as a JSON text: it goes out as it is. */
const payloadText = (payload: Buffer): string =>
  payload[0] === QUOTE ? payload.toString("utf8") : JSON.stringify(payload.toString("utf8"));

/** AxonEventView (spec 2) as JSON; undefined for a line that only echoes a command. */
function encode(event: LogEvent): string | undefined {
  const { head, payload } = openEnvelope(event);
  if (head.echo_of !== undefined) return undefined;
  const system = head.origin === "SYSTEM_EVENT" ? systemEvent(head, payload) : undefined;
  const text = system === undefined ? payloadText(payload) : JSON.stringify(JSON.stringify(system.payload));
  const { event_type, origin } = system ?? head;
  const { session_id, seq, source, label, timestamp_ms, turn_id } = head;
  const first = JSON.stringify({ axon_id: session_id, event_type, origin }).slice(0, -1);
  const rest = JSON.stringify({ sequence: seq, source: label ?? source, timestamp_ms, ...(turn_id && { turn_id }) });
  return `${first},"payload":${text},${rest.slice(1)}`;
}

/** The event as one SSE frame, made once for all viewers where it is small; nothing for one that is not shown. */
export function axonFrame(event: LogEvent): readonly Uint8Array[] {
  const kept = event.encoded.dialect;
  if (kept !== undefined) return kept.length === 0 ? [] : [kept];
  const view = encode(event);
  const frame = view === undefined ? Buffer.alloc(0) : Buffer.concat([FRAME_START, Buffer.from(view), FRAME_END]);
  if (frame.length <= CACHED_LIMIT_BYTES) event.encoded.dialect = frame;
  return frame.length === 0 ? [] : [frame];
}

/** The event's AxonEventView as JSON, or undefined. */
export function axonJson(event: LogEvent): Uint8Array | undefined {
  return axonFrame(event)[0]?.subarray(FRAME_START.length, -FRAME_END.length);
}

/** A published payload as the log keeps it: JSON as it came, any other text as a JSON text. */
export function storedPayload(text: string): Uint8Array {
  return Buffer.from(isPlainJson(text) ? text : JSON.stringify(text));
}

function isPlainJson(text: string): boolean {
  if ((text[0] !== "{" && text[0] !== "[") || !text.isWellFormed()) return false;
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === "object";
  } catch {
    return false;
  }
}

/** A JSON object that a payload holds, or undefined. */
export function jsonObjectOf(text: string): JsonObject | undefined {
  try {
    const value: unknown = JSON.parse(text);
    return isJsonObject(value) ? value : undefined;
  } catch {
    return undefined;
  }
}

/** What a session's log calls the time of an event. */
export const timeOf = (event: Pick<LogEvent, "envelope">): number => openEnvelope(event).head.timestamp_ms;
