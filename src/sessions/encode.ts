import type { NewEvent } from "../log/port.ts";
import { seq, sessionId } from "../protocol/ids.ts";
import type { Draft } from "./work.ts";

/** A draft as the log takes it: the head in wire order, the payload as bytes; an agent's own line stays as it came. */
export function encodeDraft(id: string, draft: Draft, timestamp_ms: number): NewEvent {
  const { seq: number, payload, restricted, echo_of, ...head } = draft;
  const bytes = payload instanceof Uint8Array ? payload : Buffer.from(JSON.stringify(payload), "utf8");
  return {
    head: {
      session_id: sessionId(id),
      seq: seq(number),
      event_type: head.event_type,
      origin: head.origin,
      source: head.source,
      timestamp_ms,
      ...(head.label !== undefined && { label: head.label }),
      ...(head.turn_id !== undefined && { turn_id: head.turn_id }),
      ...(head.command_id !== undefined && { command_id: head.command_id }),
      ...(head.preview && { preview: true as const }),
      ...(echo_of !== undefined && { echo_of: seq(echo_of) }),
    },
    payload: bytes,
    ...(restricted && { restricted }),
  };
}
