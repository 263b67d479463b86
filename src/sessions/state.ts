import type { Delivery, OpenRequest, SessionState } from "../protocol/events.ts";
import type { JsonObject } from "../protocol/json.ts";
import type { Owner } from "./owners.ts";

/** Where the agent's process is in its life. A phase carries only what exists in it. */
export type Phase =
  | { readonly name: "hibernated" }
  /** Asked to start; the CLI has not answered `initialize` yet. */
  | { readonly name: "starting"; readonly since: number; readonly initializeId: string }
  | { readonly name: "live"; readonly since: number }
  /** Asked to stop because the session ends. */
  | { readonly name: "stopping"; readonly since: number }
  | { readonly name: "failed"; readonly reason: string }
  | { readonly name: "ended" };

/** A user message that is durable and not yet written to the agent. */
export interface QueuedTurn {
  readonly turnId: string;
  /** The number of its `query` event: the message is read from there. */
  readonly seq: number;
  readonly delivery: Delivery;
}

/** A turn that the agent has (or, by = agent, that it started by itself). */
export interface Turn {
  readonly turnId: string;
  readonly by: "user" | "agent";
  /** The number of its `query` event; absent when the agent started it. */
  readonly seq?: number;
  /** `turn.started` is in the log. */
  readonly started: boolean;
  /** The CLI has echoed the message: it is part of what runs now. */
  readonly echoed: boolean;
}

/** A client's control_request that the agent has not answered. */
export interface PendingControl {
  readonly requestId: string;
  readonly commandId: string;
  readonly subtype: string;
  /** For cancel_async_message: the turn that it withdraws. */
  readonly target?: string;
}

export interface Usage {
  /** Total of processes that are gone, and the running total of the one that lives (the CLI counts per process). */
  readonly pastCostUsd: number;
  readonly processCostUsd: number;
  readonly turns: number;
}

/** What must survive the server; stored with the events that changed it, in one transaction. */
export interface Snapshot {
  /** The agent had a process (or was getting one) when this was stored. */
  readonly hadAgent: boolean;
  readonly ended: boolean;
  readonly failure?: string;
  /** Leftover of a crash, to be killed only if pid and start time still match. */
  readonly process?: { readonly pid: number; readonly startTime: string };
  readonly cliSessionId: string;
  readonly owners: readonly Owner[];
  readonly queue: readonly QueuedTurn[];
  readonly turns: readonly Turn[];
  readonly requests: readonly OpenRequest[];
  readonly pending: readonly PendingControl[];
  readonly usage: Usage;
  readonly version: string | null;
  readonly model: string | null;
  readonly permissionMode: string | null;
}

/** The text of a message that is still streaming: what `turn.partial` would say if the turn died now. */
export interface Streaming {
  readonly messageId: string | undefined;
  readonly text: string;
}

/** Everything that `step` decides on. Never changed in place. */
export interface State extends Omit<Snapshot, "hadAgent" | "ended" | "failure"> {
  /** The last number given to an event. */
  readonly seq: number;
  readonly phase: Phase;
  /** The turn that lines now belong to. */
  readonly current: string | undefined;
  /** control_requests to write once the agent is live. */
  readonly held: readonly JsonObject[];
  readonly streaming: Streaming | undefined;
  /** The CLI's answer to `initialize`, for every client that asks for it. */
  readonly initialized: JsonObject | undefined;
  readonly background: readonly string[];
  /** Exits in a row without a finished turn. */
  readonly crashes: number;
  /** The state that the last `session.state` event told. */
  readonly told: SessionState;
}

/** A session that never had a process. */
export function newState(cliSessionId: string): State {
  return {
    seq: 0,
    phase: { name: "hibernated" },
    cliSessionId,
    owners: [],
    queue: [],
    turns: [],
    requests: [],
    pending: [],
    usage: { pastCostUsd: 0, processCostUsd: 0, turns: 0 },
    version: null,
    model: null,
    permissionMode: null,
    current: undefined,
    held: [],
    streaming: undefined,
    initialized: undefined,
    background: [],
    crashes: 0,
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

export function snapshotOf(state: State): Snapshot {
  const { cliSessionId, owners, queue, turns, requests, pending, usage, version, model, permissionMode, phase } = state;
  return {
    hadAgent: phase.name === "starting" || phase.name === "live" || phase.name === "stopping",
    ended: phase.name === "ended",
    ...(phase.name === "failed" && { failure: phase.reason }),
    ...(state.process && { process: state.process }),
    cliSessionId,
    owners,
    queue,
    turns,
    requests,
    pending,
    usage,
    version,
    model,
    permissionMode,
  };
}

/** The state that a stored snapshot stands for, before `recovered` has dealt with what the crash left. */
export function restoredState(snapshot: Snapshot, last: number, told: SessionState): State {
  const { hadAgent, ended, failure, ...rest } = snapshot;
  const phase: Phase = ended
    ? { name: "ended" }
    : hadAgent
      ? { name: "live", since: 0 }
      : failure === undefined
        ? { name: "hibernated" }
        : { name: "failed", reason: failure };
  // Connections do not survive the server that had them.
  const owners = (rest.owners ?? []).map(({ connectionId: _old, ...owner }) => owner);
  return { ...newState(rest.cliSessionId), ...rest, owners, phase, seq: last, told };
}

/** True when something that the snapshot holds differs: then it is stored again. Compares by identity, as nothing is changed in place. */
export function snapshotChanged(before: State, after: State): boolean {
  const keys = [
    "phase",
    "process",
    "cliSessionId",
    "owners",
    "queue",
    "turns",
    "requests",
    "pending",
    "usage",
    "version",
    "model",
    "permissionMode",
  ] as const;
  return keys.some((key) => before[key] !== after[key]);
}
