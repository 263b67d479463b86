import { BrokerError } from "../protocol/problems.ts";
import type { Actor, Note } from "./port.ts";
import { emit, type Work } from "./work.ts";

/** An event that is only kept and shown: no agent hears of it. It has no command_id, which tells it from a command of the same name. */
export function onNote(work: Work, note: Note, actor: Actor): void {
  if (work.state.phase.name === "ended") {
    throw new BrokerError("session_ended", "The session has ended; create a new one.");
  }
  emit(work, {
    event_type: note.event_type,
    origin: note.origin,
    source: note.origin === "SYSTEM_EVENT" || note.origin === "AGENT_EVENT" ? "broker" : actor.id,
    payload: note.payload,
    ...(actor.label !== undefined && { label: actor.label }),
  });
}
