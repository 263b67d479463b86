import type { TurnEdge } from "../log/port.ts";
import type { Origin, SystemEventType, SystemPayloads } from "../protocol/events.ts";
import type { JsonObject } from "../protocol/json.ts";
import type { AuditNote, Decide, TurnEnd } from "./port.ts";
import { type OutboxLine, type State, sessionState } from "./state.ts";

/** An event that a step decided on; the session adds id and time and encodes it. */
export interface Draft {
  readonly seq: number;
  readonly event_type: string;
  readonly origin: Origin;
  readonly source: string;
  /** Bytes go out as they are (an agent's line); an object is encoded. */
  readonly payload: Uint8Array | JsonObject;
  readonly label?: string;
  readonly turn_id?: string;
  readonly command_id?: string;
  readonly preview?: true;
  readonly echo_of?: number;
  readonly restricted?: true;
}

/** `stop` is the ladder from its first rung, after the lines of this step; `kill` has no patience. */
export type Lifecycle = "start" | "stop" | "kill";

/** What a step wants done, in this order: append, then (durable) stdin lines and lifecycle. */
export interface Outcome {
  readonly state: State;
  readonly events: readonly Draft[];
  /** New lines for the agent's stdin, in the order of their ids. */
  readonly stdin: readonly OutboxLine[];
  readonly lifecycle: Lifecycle | undefined;
  readonly edge: TurnEdge | undefined;
  readonly ended: readonly TurnEnd[];
  /** For the audit record, in the transaction of the events: written before anything reaches the agent. */
  readonly audits: readonly AuditNote[];
  /** transcript_mirror lines: for the stored transcript, in the transaction of the events. */
  readonly mirrored: readonly Uint8Array[];
}

/** A step under way: a private copy of the state, and what has been decided so far. */
export interface Work {
  state: State;
  readonly now: number;
  readonly newId: () => string;
  readonly events: Draft[];
  /** Lines for the agent's stdin: an object, or the number of the event whose payload is the line. */
  readonly stdin: (JsonObject | number)[];
  lifecycle: Lifecycle | undefined;
  edge: TurnEdge | undefined;
  readonly ended: TurnEnd[];
  readonly audits: AuditNote[];
  readonly mirrored: Uint8Array[];
  /** For the state that follows, where there is one to give. */
  reason: string | undefined;
  readonly decide: Decide;
}

export function startWork(
  state: State,
  { now, newId, decide }: { now: number; newId: () => string; decide: Decide },
): Work {
  return {
    state,
    now,
    newId,
    decide,
    events: [],
    stdin: [],
    lifecycle: undefined,
    edge: undefined,
    ended: [],
    audits: [],
    mirrored: [],
    reason: undefined,
  };
}

export function change(work: Work, part: Partial<State>): void {
  work.state = { ...work.state, ...part };
}

type DraftPart = Omit<Draft, "seq">;

/** Numbers an event and puts it in line. Returns its number. */
export function emit(work: Work, draft: DraftPart): number {
  const seq = work.state.seq + 1;
  work.state = { ...work.state, seq };
  work.events.push({ ...draft, seq });
  return seq;
}

/** A SYSTEM_EVENT of the broker, typed by its name. */
export function tell<T extends SystemEventType>(
  work: Work,
  event_type: T,
  payload: SystemPayloads[T],
  turnId?: string,
): number {
  return emit(work, {
    event_type,
    origin: "SYSTEM_EVENT",
    source: "broker",
    payload: payload as JsonObject,
    ...(turnId !== undefined && { turn_id: turnId }),
  });
}

/** A line that the agent can no longer say and somebody waits for (contract 5): always with source "broker". */
export function speakForAgent(
  work: Work,
  line: JsonObject & { readonly type: string },
  extra: Partial<Draft> = {},
): number {
  return emit(work, { event_type: line.type, origin: "AGENT_EVENT", source: "broker", payload: line, ...extra });
}

/** Tells a changed state and closes the step. */
export function finishWork(work: Work): Outcome {
  const { reason } = work;
  const told = sessionState(work.state);
  if (told !== work.state.told) {
    tell(work, "session.state", { state: told, ...(reason !== undefined && { reason }) });
    change(work, { told });
  }
  const stdin = numberLines(work);
  const { state, events, lifecycle, ended, audits, mirrored } = work;
  // One turn ended and the next one runs already: its previews need their numbers guarded.
  const edge = work.edge === "end" && state.current !== undefined ? "begin" : work.edge;
  return { state, events, stdin, lifecycle, edge, ended, audits, mirrored };
}

/** Lines stay in the state until the runner has confirmed them: a server that comes after a crash hands in again what may be missing. */
function numberLines(work: Work): readonly OutboxLine[] {
  if (work.stdin.length === 0) return [];
  const first = work.state.stdinId + 1;
  const lines = work.stdin.map((line, index) => ({ id: first + index, line }));
  change(work, { stdinId: first + lines.length - 1, outbox: [...work.state.outbox, ...lines] });
  return lines;
}
