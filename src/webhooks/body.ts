import type { JsonObject } from "../protocol/json.ts";

/** A system event as the session tells it, in the transaction that makes it durable. */
export interface TellableEvent {
  readonly seq: number;
  readonly event_type: string;
  readonly payload: JsonObject;
  readonly atMs: number;
  readonly turn_id?: string;
}

/** A link by which one request can be answered once, without a key. */
export interface AnswerLink {
  readonly url: string;
  readonly expires_at_ms: number;
}

const SMALL_TEXT_CHARS = 1_000;

/** What is left of a payload that is too large: its short plain values. */
function shortened(payload: JsonObject): JsonObject {
  const kept = Object.entries(payload).filter(([, value]) =>
    typeof value === "string" ? value.length <= SMALL_TEXT_CHARS : typeof value === "number",
  );
  return { ...Object.fromEntries(kept), truncated: true };
}

/** The envelope of the event, as every transport shows it. One over the limit keeps only the short fields of its payload. */
export function deliveryBody(sessionId: string, event: TellableEvent, limitBytes: number): string {
  const { seq, event_type, payload, atMs, turn_id } = event;
  const head = {
    session_id: sessionId,
    seq,
    event_type,
    origin: "SYSTEM_EVENT",
    source: "broker",
    timestamp_ms: atMs,
    ...(turn_id !== undefined && { turn_id }),
  };
  const whole = JSON.stringify({ ...head, payload });
  return Buffer.byteLength(whole) <= limitBytes ? whole : JSON.stringify({ ...head, payload: shortened(payload) });
}

/** The same body with the link beside the payload. */
export const withAnswer = (body: string, answer: AnswerLink | undefined): string =>
  answer === undefined ? body : `${body.slice(0, -1)},"answer":${JSON.stringify(answer)}}`;
