import type { Seq, SessionId } from "./ids.ts";
import type { PolicyGrants } from "./policy.ts";

export type Origin = "USER_EVENT" | "AGENT_EVENT" | "SYSTEM_EVENT" | "EXTERNAL_EVENT";

/** What a client sends becomes an event of its own name (contract 5). */
export const COMMAND_TYPES = ["query", "control_request", "control_response", "control_cancel_request"] as const;
export type CommandType = (typeof COMMAND_TYPES)[number];

/** Everything of an event but its payload: the order here is the order on the wire. */
export interface EventHead {
  readonly session_id: SessionId;
  readonly seq: Seq;
  /** For AGENT_EVENT the CLI line's own `type`; for USER_EVENT a CommandType; for SYSTEM_EVENT a key of SystemPayloads. */
  readonly event_type: string;
  readonly origin: Origin;
  /** Who made it: `agent`, `broker`, or the id of the principal. */
  readonly source: string;
  readonly timestamp_ms: number;
  /** What a client of a foreign dialect calls itself, or the system that it speaks for: its own word. */
  readonly label?: string;
  readonly turn_id?: string;
  readonly command_id?: string;
  /** Shown at once, kept until its turn ends, not durable. */
  readonly preview?: true;
  /** The seq of the command that this line only echoes. */
  readonly echo_of?: Seq;
  readonly redacted?: number;
}

/** The envelope, the same on every transport (contract 5). */
export interface Envelope<P = unknown> extends EventHead {
  readonly payload: P;
}

/** `interrupted` and `withdrawn` are ways for a turn to end, not failures. Others are the CLI's own words. */
export type StopReason = "end_turn" | "interrupted" | "withdrawn" | "max_turns" | "max_budget" | (string & {});

/** Why a turn has no good end. */
export type FailureReason =
  | "api_error"
  | "execution_error"
  | "agent_exited"
  | "agent_start_failed"
  | "server_restarted"
  /** The agent did not react any more, and was stopped when somebody had interrupted it. */
  | "stalled"
  | "session_ended";

export type RequestOutcome = "answered" | "cancelled" | "expired" | "lost";

/** Something the agent asked and waits for (contract 3). */
export interface OpenRequest {
  readonly request_id: string;
  readonly kind: RequestKind;
  /** The CLI's control_request subtype. */
  readonly subtype: string;
  /** Where `request.opened` stands in the log. */
  readonly seq: Seq;
  readonly turn_id?: string;
  readonly opened_at_ms: number;
  /** Two different people must allow it; those who have so far. `input` is what they allowed, as JSON. */
  readonly approvals_needed?: number;
  readonly approvals?: readonly { readonly by: string; readonly at_ms: number; readonly input: string }[];
  /** Answered by this client alone: it registered the hook or the MCP server. `callback_id` is the one that it knows. */
  readonly owner?: string;
  readonly callback_id?: string;
  /** What an answer may add without an admin, by policy. */
  readonly grants?: PolicyGrants;
  /** Denied by policy when nobody has answered by then. */
  readonly expires_at_ms?: number;
  /** The CLI's own `request` object, unchanged. */
  readonly request: Readonly<Record<string, unknown>>;
}

export type RequestKind = "permission" | "question" | "plan" | "hook" | "mcp" | "elicitation" | "dialog" | "other";

export type SessionState = "starting" | "idle" | "running" | "requires_action" | "hibernated" | "failed" | "ended";

/** Payloads of SYSTEM_EVENTs by event_type. More may come; ignore what you do not know. */
export interface SystemPayloads {
  "turn.queued": { turn_id: string; delivery: Delivery };
  /** `by`: a user message, or something that the CLI started by itself (a background task that reported). */
  /** After an interrupt: these were not touched by it and run next. */
  "turn.still_queued": { turn_ids: string[] };
  "turn.started": { turn_id: string; by: "user" | "agent" };
  "turn.completed": { turn_id: string; stop_reason: StopReason; folded_into?: string };
  "turn.failed": { turn_id: string; reason: FailureReason; message: string; api_error_status?: number };
  /** Nothing has come from the agent for so long. An `interrupt` that does not end the turn makes the broker restart the agent. */
  "turn.stalled": { turn_id: string; silent_ms: number; offers: string[] };
  /** The text of a message that was cut off: what the previews had shown so far. */
  "turn.partial": { turn_id: string; message_id?: string; text: string; truncated?: true };
  "request.opened": OpenRequest;
  /** The first of two approvals: it settles nothing. */
  "request.approved": { request_id: string; by: string; approvals_needed: number };
  "request.resolved": {
    request_id: string;
    outcome: RequestOutcome;
    decision?: Readonly<Record<string, unknown>>;
    decided_by?: string;
  };
  /** An answer by way of a foreign dialect that did not count: it came second, or its sender may not answer. */
  "request.answer_refused": { request_id: string; by: string; code: string; message: string };
  /** A devbox of Runloop's API, which is this session's agent seen from there. */
  "devbox.running": { devbox_id: string; reason?: string };
  "devbox.suspended": { devbox_id: string; reason?: string };
  "devbox.shutdown": { devbox_id: string; reason?: string };
  "devbox.failed": { devbox_id: string; reason?: string };
  /** A client that serves hooks or MCP servers came, or went. */
  "registration.changed": { owner: string; connected: boolean; hooks: string[]; mcp_servers: string[] };
  "session.state": { state: SessionState; reason?: string };
  "session.recovered": { reason: string };
  /** The first event of a session that began with the history of another one, up to and including the message `at` (absent: all of it). */
  "session.forked": { session_id: string; at?: string };
  "agent.started": { pid: number; version?: string; cli_session_id: string; resumed: boolean };
  "agent.exited": { code: number | null; signal: string | null; how: string; lost?: true; stderr_tail?: string };
  /** The runner of the agent cannot be reached for now (devbox); nothing is lost, what the agent says comes later. */
  "agent.away": Record<string, never>;
  "agent.back": Record<string, never>;
  "agent.log":
    | { stream: "stdout"; text: string }
    | { stream: "stdout"; base64: string }
    | { stream: "broker"; text: string };
  "agent.line_dropped": { bytes: number; limit_bytes: number };
}
export type SystemEventType = keyof SystemPayloads;

/** When a query reaches the CLI: after the running turn (default), or now (the CLI may fold it into the running turn). */
export const DELIVERIES = ["after_turn", "at_once"] as const;
export type Delivery = (typeof DELIVERIES)[number];

/** What GET /v1/sessions/{id} shows. */
export interface SessionView {
  readonly id: SessionId;
  readonly tenant: string;
  readonly name: string | null;
  readonly metadata: Readonly<Record<string, string>>;
  readonly state: SessionState;
  readonly reason?: string;
  /** The highest number shown to anyone so far. */
  readonly head: Seq;
  readonly created_at_ms: number;
  readonly updated_at_ms: number;
  /** Relative to the tenant's folder. */
  readonly cwd: string;
  readonly agent: {
    readonly model: string | null;
    readonly permission_mode: string | null;
    readonly version: string | null;
    readonly cli_session_id: string;
    readonly pid?: number;
  };
  /** It asked for a runner that dials in: one with these labels; `name` is the one that it lives on. */
  readonly runner?: {
    readonly labels: Readonly<Record<string, string>>;
    readonly when_away: "wait" | "fail";
    readonly name?: string;
  };
  readonly open_requests: readonly OpenRequest[];
  /** Turns accepted and not yet started, oldest first. */
  readonly queued_turns: readonly string[];
  readonly usage: { readonly cost_usd: number; readonly turns: number };
}
