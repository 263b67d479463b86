import type { Delivery, OpenRequest, SessionState } from "../protocol/events.ts";
import type { JsonObject } from "../protocol/json.ts";
import type { Owner } from "./owners.ts";

/** Why an agent is asked to stop: its session ends, nothing has been asked of it for long, it does not react any more. */
export type StopCause = "end" | "hibernate" | "stalled";

/** Where the agent's process is in its life. A phase carries only what exists in it. */
export type Phase =
  /** No process. `wakeAtMs`: after a crash the next one waits until then. */
  | { readonly name: "hibernated"; readonly wakeAtMs?: number }
  /** Asked to start; the CLI has not answered `initialize` yet. `waiting`: what the start waits for. */
  | { readonly name: "starting"; readonly since: number; readonly initializeId: string; readonly waiting?: string }
  | { readonly name: "live"; readonly since: number }
  /** Asked to stop. */
  | { readonly name: "stopping"; readonly since: number; readonly cause: StopCause }
  | { readonly name: "failed"; readonly reason: string }
  | { readonly name: "ended" };

/** A user message that is durable and not yet written to the agent. */
export interface QueuedTurn {
  readonly turnId: string;
  /** The number of its `query` event: the message is read from there. */
  readonly seq: number;
  readonly delivery: Delivery;
  /** A process that crashed had it: `turn.started` is in the log. */
  readonly started?: boolean;
}

/** A turn that the agent has (or, by = agent, that it started by itself). */
export interface Turn {
  readonly turnId: string;
  readonly by: "user" | "agent";
  /** The number of its `query` event; absent when the agent started it. */
  readonly seq?: number;
  readonly delivery?: Delivery;
  /** `turn.started` is in the log. */
  readonly started: boolean;
  /** The CLI has echoed the message: it is part of what runs now. */
  readonly echoed: boolean;
  /** A process that crashed had put it into the conversation; the next one runs it again. */
  readonly rerun?: true;
}

/** A client's control_request that the agent has not answered. */
export interface PendingControl {
  readonly requestId: string;
  readonly commandId: string;
  readonly subtype: string;
  /** The agent has been handed it. */
  readonly written: boolean;
  /** For cancel_async_message: the turn that it withdraws. */
  readonly target?: string;
}

export interface Usage {
  /** Total of processes that are gone, and the running total of the one that lives (the CLI counts per process). */
  readonly pastCostUsd: number;
  readonly processCostUsd: number;
  readonly turns: number;
}

/** A line for the agent's stdin that is decided and perhaps not written yet: an object, or the number of the event whose payload it is. */
export interface OutboxLine {
  readonly id: number;
  readonly line: JsonObject | number;
}

/** How much of a message that streams is kept, in UTF-16 units: the longest that a model says is about as long. */
export const PARTIAL_LIMIT_CHARS = 256 * 1024;

/** The text of a message that is still streaming: what `turn.partial` would say if the turn died now. */
export interface Streaming {
  readonly messageId: string | undefined;
  readonly text: string;
}

/**
 * Everything that `step` decides on. Never changed in place. All of it but `initialized` is stored with the events that changed it, in one
 * transaction, so that a server that joins a living runner goes on exactly where the last durable event left it (design 3).
 */
export interface State {
  /** The last number given to an event. */
  readonly seq: number;
  readonly phase: Phase;
  /** The agent process that belongs to this session now; set from the wish to start it until its exit (contract promise 7). */
  readonly run: string | undefined;
  /** Known once it has started. */
  readonly process?: { readonly pid: number; readonly startTime: string };
  readonly cliSessionId: string;
  readonly owners: readonly Owner[];
  readonly queue: readonly QueuedTurn[];
  readonly turns: readonly Turn[];
  /** The turn that lines now belong to. */
  readonly current: string | undefined;
  readonly requests: readonly OpenRequest[];
  readonly pending: readonly PendingControl[];
  /** control_requests to write once the agent is live: the numbers of their events. */
  readonly held: readonly number[];
  /** Lines of this run's stdin that its runner has not confirmed, and the id of the newest one. */
  readonly outbox: readonly OutboxLine[];
  readonly stdinId: number;
  readonly streaming: Streaming | undefined;
  /** The CLI's answer to `initialize`, for every client that asks for it. */
  readonly initialized: JsonObject | undefined;
  readonly background: readonly string[];
  /** Exits in a row without a finished turn. */
  readonly crashes: number;
  /** The next process runs the unfinished turn again by itself (`on_crash: continue`). */
  readonly rerun: boolean;
  /** The agent's runner cannot be reached for now: what the agent does meanwhile shows when it is back. */
  readonly isAway: boolean;
  /** No agent may start: it has none, or it was suspended. What would wake it waits. */
  readonly parked: boolean;
  /** The running turn was told to be stalled; `interrupted`: somebody has asked to stop it since. */
  readonly stalled: { readonly turnId: string; readonly interrupted: boolean } | undefined;
  /** Until then the CLI waits to try the API again, in silence. */
  readonly retryUntilMs: number;
  readonly usage: Usage;
  readonly version: string | null;
  readonly model: string | null;
  readonly permissionMode: string | null;
  /** The state that the last `session.state` event told. */
  readonly told: SessionState;
}

/** What must survive the server. */
export type Snapshot = Omit<State, "initialized">;

/** A session that never had a process. */
export function newState(cliSessionId: string): State {
  return {
    seq: 0,
    phase: { name: "hibernated" },
    run: undefined,
    cliSessionId,
    owners: [],
    queue: [],
    turns: [],
    current: undefined,
    requests: [],
    pending: [],
    held: [],
    outbox: [],
    stdinId: 0,
    streaming: undefined,
    initialized: undefined,
    background: [],
    crashes: 0,
    rerun: false,
    isAway: false,
    parked: false,
    stalled: undefined,
    retryUntilMs: 0,
    usage: { pastCostUsd: 0, processCostUsd: 0, turns: 0 },
    version: null,
    model: null,
    permissionMode: null,
    told: "hibernated",
  };
}

/** contract 4, session.state. */
export function sessionState(state: Pick<State, "phase" | "requests" | "turns">): SessionState {
  switch (state.phase.name) {
    case "hibernated":
    case "starting":
    case "failed":
    case "ended":
      return state.phase.name;
    case "live":
    case "stopping":
      if (state.requests.some((request) => request.owner === undefined)) return "requires_action";
      return state.turns.length > 0 ? "running" : "idle";
  }
}

/** A process exists, or is on its way: another server has to look after it. */
export function hasAgent({ phase }: Pick<State, "phase">): boolean {
  return phase.name === "starting" || phase.name === "live" || phase.name === "stopping";
}

/** Somebody has to look after it though no client asks: a process, or what waits for one. */
export function needsServer(state: State): boolean {
  const { queue, held, rerun } = state;
  return hasAgent(state) || queue.length > 0 || held.length > 0 || rerun;
}

/** No turn, queue, request or background task (design 5): only then may the process be taken away. */
export function isIdle({ phase, isAway, turns, queue, requests, pending, background }: State): boolean {
  return (
    phase.name === "live" && !isAway && [turns, queue, requests, pending, background].every((list) => list.length === 0)
  );
}

export function snapshotOf({ initialized: _apart, ...snapshot }: State): Snapshot {
  return snapshot;
}

/** The state that a stored snapshot stands for. `last` = the number to go on from. */
export function restoredState(snapshot: Snapshot, last: number, initialized?: JsonObject): State {
  // Connections do not survive the server that had them.
  const owners = snapshot.owners.map(({ connectionId: _old, ...owner }) => owner);
  return { ...newState(snapshot.cliSessionId), ...snapshot, owners, seq: last, initialized };
}

/** What is stored as soon as it changes. The rest differs with every line, or only shrinks: it is stored along with these. */
const STORED = [
  "phase",
  "run",
  "process",
  "cliSessionId",
  "owners",
  "queue",
  "turns",
  "current",
  "requests",
  "pending",
  "held",
  "stdinId",
  "background",
  "crashes",
  "rerun",
  "isAway",
  "parked",
  "stalled",
  "usage",
  "version",
  "model",
  "permissionMode",
] as const;

/** True when something that must be stored differs. Compares by identity, as nothing is changed in place. */
export function snapshotChanged(before: State, after: State): boolean {
  return before !== after && STORED.some((key) => before[key] !== after[key]);
}
