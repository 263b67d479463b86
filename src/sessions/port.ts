import type { EventLog, LogEvent } from "../log/port.ts";
import type { Accepted, Command } from "../protocol/commands.ts";
import type { OpenRequest, Origin, RequestKind, SessionState, SessionView } from "../protocol/events.ts";
import type { Seq } from "../protocol/ids.ts";
import type { JsonObject } from "../protocol/json.ts";
import type { Verdict } from "../protocol/policy.ts";
import type { Capability, Registration } from "../protocol/registration.ts";
import type { Role } from "../protocol/roles.ts";
import type { AgentOptions, NewFork, NewSession, SessionPatch } from "../protocol/sessions.schema.ts";

// A session hands its log on: those who read it need the words for it.
export type { EventLog, LogEvent };

/** Who asks, as far as a session needs to know: the id goes into events, and scopes command ids. */
export interface Actor {
  readonly id: string;
  readonly roles?: readonly Role[];
  /** Where from, for the audit record. */
  readonly address?: string;
  readonly connection_id?: string;
  /** What its connection said that it can answer; undefined = not asked (HTTP). */
  readonly capabilities?: readonly Capability[];
  readonly via?: "ws" | "http";
  readonly ticket?: true;
  /** What it calls itself, in a dialect that has a word for that. */
  readonly label?: string;
  /** It passes on what another system said: its query is an EXTERNAL_EVENT. */
  readonly external?: true;
}

/** An event of a client or of the broker that is only kept and shown. The payload is JSON, UTF-8; the id makes a repeat harmless. */
export interface Note {
  readonly id: string;
  readonly event_type: string;
  /** AGENT_EVENT: what an agent that is not there would have to say. Its source is `broker`, as a SYSTEM_EVENT's is. */
  readonly origin: Origin;
  readonly payload: Uint8Array;
}

/** What a session's agent is to be, given after the session was made. `cwd` as at creation; absent = the session's own folder. */
export interface Mount {
  readonly agent: AgentOptions;
  /** Variables whose values are secrets of the tenant, by name. */
  readonly secrets?: Readonly<Record<string, string>>;
  readonly cwd?: string;
  readonly idle_timeout_s?: number;
}

/** Asked for every request of the agent that somebody can answer, before anybody is asked. Pure and at once (design 1: the broker fills it from auth). */
export type Decide = (question: {
  readonly kind: RequestKind;
  readonly request: JsonObject;
  readonly mode: string | null;
  readonly version: string | null;
}) => Verdict;

/** Nobody has a policy: people are asked. */
export const ASK_PEOPLE: Decide = () => ({ effect: "ask", decided_by: "policy:default", approvers: 1 });

/** One thing for the audit record: who decided what, and what they were shown. */
export interface AuditNote {
  readonly kind: "answer" | "policy" | "control" | "mode" | "session";
  readonly actor: Actor;
  /** Of a request of the agent, or a control_request to it. */
  readonly request_id?: string;
  readonly subtype: string;
  readonly tool_name?: string;
  /** The input that was shown, as JSON. */
  readonly shown?: string;
  readonly decision: JsonObject;
  readonly outcome: string;
  readonly seq?: number;
}

/** A system event, for those who are told outside of any socket. */
export interface ToldEvent {
  readonly seq: number;
  readonly event_type: string;
  readonly payload: JsonObject;
  readonly atMs: number;
  readonly turn_id?: string;
}

/** What a new subscriber is told, consistent with `head`: an open request is either here or comes as an event beyond head. */
export interface Standing {
  readonly head: Seq;
  readonly state: SessionState;
  readonly openRequests: readonly OpenRequest[];
  /** The session has ended, and `head` is the last number its log will ever have. */
  readonly finished: boolean;
}

/** How a turn ended, for callers that wait for it. */
export interface TurnEnd {
  readonly turn_id: string;
  readonly outcome: "completed" | "failed";
  /** stop_reason of turn.completed, or reason of turn.failed. */
  readonly reason: string;
  /** The CLI's `result` line when there was one. */
  readonly result: unknown;
}

/** One session: an agent joined to a log (design 5). */
export interface Session {
  readonly id: string;
  readonly tenant: string;
  readonly log: EventLog;
  view(): SessionView;
  standing(): Standing;
  /** Applies a command once. Resolves when it is durable. @throws BrokerError id_reused, request_*, invalid_answer, session_ended, … */
  command(command: Command, actor: Actor): Promise<Accepted>;
  /** A query whose end can be waited for. `ended` resolves when the turn has its terminal event, whoever else watches. */
  turn(
    command: Command & { event_type: "query" },
    actor: Actor,
  ): Promise<Accepted & { turn_id: string; ended: Promise<TurnEnd> }>;
  /** Changes its labels, on record in the same transaction. */
  update(patch: SessionPatch, actor: Actor): Promise<SessionView>;
  /** A client serves hooks or MCP servers from now on, by this connection; it takes over from an older one of its own. Durable when it
   * resolves, with the `owner` that its requests will carry. */
  register(actor: Actor & { readonly connection_id: string }, registration: Registration): Promise<string>;
  /** That connection has ended. */
  unregister(connectionId: string): void;
  /** Keeps an event that concerns no agent. @throws BrokerError id_reused, session_ended */
  note(note: Note, actor: Actor): Promise<Accepted>;
  /** Whether it may have an agent now: `none` = not until one is mounted, `parked` = suspended, `crashed` = it has had one that died, and the next message starts another, `ready` = it has one or starts one. */
  agentStanding(): "none" | "parked" | "crashed" | "ready";
  /** Gives it an agent, started at once. @throws BrokerError agent_arg_refused, cwd_refused, session_ended */
  mount(mount: Mount, actor: Actor): Promise<void>;
  /** Takes its agent away for good: what waits for it is given up. */
  unmount(actor: Actor): Promise<void>;
  /** Stops its agent; what comes meanwhile waits for `resume`, which starts one again. */
  suspend(actor: Actor): Promise<void>;
  resume(actor: Actor): Promise<void>;
  /** Ends the agent and the session; it stays readable. Resolves when the agent is gone. */
  end(): Promise<void>;
}

export interface SessionFilter {
  /** undefined = every tenant (operators). */
  readonly tenant: string | undefined;
  readonly state?: SessionState;
  readonly name?: string;
  readonly metadata?: Readonly<Record<string, string>>;
  /** The value is one of these. */
  readonly metadataIn?: Readonly<Record<string, readonly string[]>>;
  readonly id?: string;
  readonly namePrefix?: string;
  /** In the name, or the whole id; case does not count. */
  readonly search?: string;
  /** Leaves out those that have ended. */
  readonly open?: true;
  /** Only those after this one in the list; an unknown id is an error. */
  readonly afterId?: string;
  readonly limit: number;
  /** Opaque; from `next` of the page before. */
  readonly cursor?: string;
}

/** All sessions of this server. */
export interface Sessions {
  /**
   * `agentless`: it has no agent until one is mounted.
   * @throws BrokerError cwd_refused, agent_arg_refused, id_reused (same key, other body)
   */
  create(
    input: NewSession,
    owner: { tenant: string; actor: Actor; idempotencyKey?: string; agentless?: true },
  ): Promise<SessionView>;
  /** A new session from the history of that one. @throws BrokerError as create, and not_found, bad_request for an unknown `at` */
  fork(
    id: string,
    input: NewFork,
    owner: { tenant: string; actor: Actor; idempotencyKey?: string },
  ): Promise<SessionView>;
  /** undefined when there is none of that id in that tenant (undefined tenant = any): foreign and missing look the same. */
  find(id: string, tenant: string | undefined): Promise<Session | undefined>;
  list(filter: SessionFilter): Promise<{ sessions: SessionView[]; next?: string }>;
  /** How many there are on all pages. */
  count(filter: SessionFilter): Promise<number>;
  /** Calls back with each change of state, open requests or cost of a session of that tenant. Returns the way to stop. */
  watch(tenant: string | undefined, changed: (view: SessionView) => void): () => void;
  /** Ends it if need be, then removes its log, own folder and home. */
  purge(id: string): Promise<void>;
  /** Flushes logs. Agents whose runner outlives the server go on, unless `stopAgents`; others are stopped by a shortened ladder. */
  close(options?: { readonly stopAgents?: boolean }): Promise<void>;
}
