import type { SessionView } from "../protocol/events.ts";
import { type Seq, seq, sessionId } from "../protocol/ids.ts";
import { isJsonObject, type JsonObject } from "../protocol/json.ts";
import type { AgentOptions } from "../protocol/sessions.schema.ts";
import type { Row, Store, Write } from "../store/port.ts";
import { markPurged } from "./runner-rows.ts";
import { needsServer, restoredState, type Snapshot, type State, sessionState, snapshotOf } from "./state.ts";

/** What was asked for at creation; of what mounts an agent, with the mount. Besides, only idleTimeoutS ever changes. */
export interface Spec {
  readonly agent: AgentOptions;
  /** Relative to the tenant's folder. */
  readonly cwd: string;
  /** The client named the folder: purge leaves it alone. */
  readonly ownFolder: boolean;
  /** A turn that its agent had fails when that dies, even if the message never got into the conversation: Runloop's clients wait for that. */
  readonly failsWithAgent?: true;
  /** Variables of its agent whose values are secrets of its tenant, by name. */
  readonly secrets?: Readonly<Record<string, string>>;
  /** It has no agent until one is mounted. */
  readonly agentless?: true;
  /** A conversation of another session that this one begins as a copy of. */
  readonly fork?: { readonly cliSessionId: string; readonly at?: string };
  /** What becomes of a turn whose agent dies: it fails (default), or the next process runs it again. */
  readonly onCrash?: "fail" | "continue";
  /** It lives on a runner that dials in, one with these labels; and what becomes of it while that one is away. */
  readonly runner?: { readonly labels: Readonly<Record<string, string>>; readonly when_away: "wait" | "fail" };
  /** Seconds that an idle process is kept, 0 = for ever; absent = the server's own. */
  readonly idleTimeoutS?: number;
}

/** A session's row, decoded. */
export interface SessionRow {
  readonly id: string;
  readonly tenant: string;
  readonly name: string | null;
  readonly metadata: Readonly<Record<string, string>>;
  readonly createdAtMs: number;
  readonly updatedAtMs: number;
  readonly head: Seq;
  /** Numbers up to here may have been shown. */
  readonly reserved: number;
  /** How far the durable events reach in the output of the agent that lives. */
  readonly mark: number;
  readonly spec: Spec;
  readonly snapshot: Snapshot;
}

const text = (row: Row, column: string): string => String(row[column]);

export function decodeRow(row: Row): SessionRow {
  return {
    id: text(row, "id"),
    tenant: text(row, "tenant"),
    name: row.name === null ? null : text(row, "name"),
    metadata: JSON.parse(text(row, "metadata")),
    createdAtMs: Number(row.created_at_ms),
    updatedAtMs: Number(row.updated_at_ms),
    head: seq(Number(row.head)),
    reserved: Number(row.reserved),
    mark: Number(row.mark),
    spec: JSON.parse(text(row, "spec")),
    snapshot: JSON.parse(text(row, "snapshot")),
  };
}

export function insertSession(row: SessionRow): Write {
  return {
    sql: `INSERT INTO sessions (id, tenant, name, metadata, state, created_at_ms, updated_at_ms, spec, snapshot)
      VALUES (?, ?, ?, ?, 'hibernated', ?, ?, ?, ?)`,
    params: [
      row.id,
      row.tenant,
      row.name,
      JSON.stringify(row.metadata),
      row.createdAtMs,
      row.updatedAtMs,
      JSON.stringify(row.spec),
      JSON.stringify(row.snapshot),
    ],
  };
}

/** Stored in the transaction of the events that changed it. */
export function saveState(id: string, state: State, now: number): Write {
  return {
    sql: "UPDATE sessions SET state = ?, live = ?, snapshot = ?, updated_at_ms = ? WHERE id = ?",
    params: [sessionState(state), needsServer(state) ? 1 : 0, JSON.stringify(snapshotOf(state)), now, id],
  };
}

/** Large and seldom new, so it is kept apart from the snapshot. */
export function saveInitialized(id: string, answer: JsonObject | undefined): Write {
  return answer === undefined
    ? { sql: "DELETE FROM session_initialized WHERE session = ?", params: [id] }
    : {
        sql: "INSERT OR REPLACE INTO session_initialized (session, answer) VALUES (?, ?)",
        params: [id, JSON.stringify(answer)],
      };
}

export async function readInitialized(store: Store, id: string): Promise<JsonObject | undefined> {
  const [row] = await store.read("SELECT answer FROM session_initialized WHERE session = ?", [id]);
  const answer: unknown = row && JSON.parse(text(row, "answer"));
  return isJsonObject(answer) ? answer : undefined;
}

/** What PATCH may change. */
export function saveLabels({ id, name, metadata, spec }: SessionRow, now: number): Write {
  return {
    sql: "UPDATE sessions SET name = ?, metadata = ?, spec = ?, updated_at_ms = ? WHERE id = ?",
    params: [name, JSON.stringify(metadata), JSON.stringify(spec), now, id],
  };
}

/** What a session leaves in tables of its own, without its events. */
export function deleteSession(id: string): Write[] {
  const tables = ["commands", "used_ids", "idempotency", "session_initialized", "transcript_entries"];
  return [
    ...tables.map((table) => ({ sql: `DELETE FROM ${table} WHERE session = ?`, params: [id] })),
    markPurged(id),
    { sql: "DELETE FROM sessions WHERE id = ?", params: [id] },
  ];
}

export async function readSession(store: Store, id: string): Promise<SessionRow | undefined> {
  const [row] = await store.read("SELECT * FROM sessions WHERE id = ?", [id]);
  return row && decodeRow(row);
}

/** What clients see of a session, from what is stored and what is known now. */
export function viewOf(row: SessionRow, state: State, head: Seq, runner?: string): SessionView {
  const { phase, process } = state;
  return {
    id: sessionId(row.id),
    tenant: row.tenant,
    name: row.name,
    metadata: row.metadata,
    state: sessionState(state),
    ...(phase.name === "failed" && { reason: phase.reason }),
    ...(phase.name === "starting" && phase.waiting !== undefined && { reason: phase.waiting }),
    head,
    created_at_ms: row.createdAtMs,
    updated_at_ms: row.updatedAtMs,
    cwd: row.spec.cwd,
    agent: {
      model: state.model ?? row.spec.agent.model ?? null,
      permission_mode: state.permissionMode ?? row.spec.agent.permission_mode ?? null,
      version: state.version,
      cli_session_id: state.cliSessionId,
      ...(process && { pid: process.pid }),
    },
    ...(row.spec.runner && { runner: { ...row.spec.runner, ...(runner !== undefined && { name: runner }) } }),
    open_requests: state.requests,
    queued_turns: state.queue.map((queued) => queued.turnId),
    usage: { cost_usd: state.usage.pastCostUsd + state.usage.processCostUsd, turns: state.usage.turns },
  };
}

/** The view of a session that nobody has opened since the server started. */
export function storedView(row: SessionRow, runner?: string): SessionView {
  return viewOf(row, restoredState(row.snapshot, row.head), row.head, runner);
}
