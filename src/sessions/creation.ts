import { randomUUID } from "node:crypto";
import { nanoid } from "nanoid";
import { claudeArguments } from "../agents/arguments.ts";
import { agentEnvironment } from "../agents/environment.ts";
import { sessionFolders } from "../agents/folders.ts";
import { relativeSegments, SESSIONS_FOLDER } from "../agents/relative-path.ts";
import { seq } from "../protocol/ids.ts";
import type { JsonObject } from "../protocol/json.ts";
import { BrokerError } from "../protocol/problems.ts";
import type { AgentOptions, NewSession } from "../protocol/sessions.schema.ts";
import type { Store, Write } from "../store/port.ts";
import type { Actor, AuditNote, Session, Sessions } from "./port.ts";
import { insertSession, type SessionRow, type Spec } from "./rows.ts";
import { newState, snapshotOf } from "./state.ts";

/** A session that asks for no runner, on a server that has none of its own. */
const ANY_RUNNER = { labels: {}, when_away: "wait" } as const;

export type Owner = Parameters<Sessions["create"]>[1];

export interface CreationParts {
  readonly store: Store;
  readonly dataDir: string;
  readonly workspaceRoot: string;
  /** Its folders are on the server's machine. */
  readonly isLocal: (spec: Spec) => boolean;
}

/** What a new session begins with beside its options: a conversation of another one, and the writes that bring it. */
export interface Origin {
  readonly fork: NonNullable<SessionRow["spec"]["fork"]>;
  readonly writes: (sessionId: string) => readonly Write[];
}

/** Stores a new session; its folders are made, its options checked. Returns its id. @throws BrokerError cwd_refused, agent_arg_refused */
export async function insertNew(
  { store, dataDir, workspaceRoot, isLocal }: CreationParts,
  input: NewSession,
  owner: Owner,
  key: readonly string[],
  now: number,
  origin?: Origin,
  audit: (id: string, note: AuditNote) => readonly Write[] = () => [],
): Promise<string> {
  const id = `ses_${nanoid()}`;
  const agent = input.agent ?? {};
  const agentless = owner.agentless === true;
  const state = { ...newState(randomUUID()), parked: agentless };
  const cwd = input.cwd === undefined ? {} : { cwd: input.cwd };
  // Refused here, with the field's name, rather than at the first message: a dry run of what the start will need.
  checkAgent(agent, state.cliSessionId);
  const spec = {
    agent,
    cwd: input.cwd === undefined ? `${SESSIONS_FOLDER}/${id}` : relativeSegments(input.cwd).join("/") || ".",
    ownFolder: input.cwd === undefined,
    ...(agentless && { agentless }),
    ...(origin && { fork: origin.fork }),
    ...(input.on_crash && { onCrash: input.on_crash }),
    ...(input.idle_timeout_s !== undefined && { idleTimeoutS: input.idle_timeout_s }),
    ...(input.runner && { runner: input.runner }),
  };
  // Said in so many words where there is no runner of the server's own: another start, with one, must not take it for its.
  const placed = isLocal(spec) || spec.runner !== undefined ? spec : { ...spec, runner: ANY_RUNNER };
  // A runner elsewhere makes them at the first start, by the same rules.
  const folders = isLocal(spec)
    ? await sessionFolders({ workspaceRoot, dataDir, tenant: owner.tenant, sessionId: id, ...cwd })
    : { relativeCwd: spec.cwd };
  const row: SessionRow = {
    id,
    tenant: owner.tenant,
    name: input.name ?? null,
    metadata: input.metadata ?? {},
    createdAtMs: now,
    updatedAtMs: now,
    head: seq(0),
    reserved: 0,
    mark: 0,
    spec: { ...placed, cwd: folders.relativeCwd },
    snapshot: snapshotOf(state),
  };
  const note = creationNote(input, owner.actor);
  await store.write([insertSession(row), ...keyWrite(key, id, now), ...(origin?.writes(id) ?? []), ...audit(id, note)]);
  return id;
}

/** @throws BrokerError agent_arg_refused */
export function checkAgent(agent: AgentOptions, cliSessionId: string): void {
  claudeArguments(agent, { kind: "new", cliSessionId, optionsFolder: "/" });
  agentEnvironment({ home: "/", configDir: "/", shared: {}, options: agent });
}

/** What the record keeps of an agent's options: of what holds credentials the names. */
export function agentNames(agent: AgentOptions): JsonObject {
  const { env, mcp_servers, system_prompt: _system, append_system_prompt: _append, ...options } = agent;
  return {
    ...options,
    ...(env !== undefined && { env: Object.keys(env) }),
    ...(mcp_servers !== undefined && { mcp_servers: Object.keys(mcp_servers) }),
  };
}

/** Who made it, and with what; of variables and MCP servers, which hold credentials, the names only. */
function creationNote({ agent = {}, prompt: _text, ...rest }: NewSession, actor: Actor): AuditNote {
  return {
    kind: "session",
    actor,
    subtype: "create",
    decision: { ...rest, agent: agentNames(agent) },
    outcome: "accepted",
  };
}

function keyWrite(key: readonly string[], id: string, now: number): Write[] {
  if (key.length === 0) return [];
  const sql =
    "INSERT INTO idempotency (tenant, principal, key, hash, session, created_at_ms) VALUES (?, ?, ?, ?, ?, ?)";
  return [{ sql, params: [...key, id, now] }];
}

/** @throws BrokerError id_reused when the key came with another body before */
export async function earlierCreation(store: Store, key: readonly string[]): Promise<string | undefined> {
  const [tenant = "", principal = "", name = "", hash] = key;
  const [row] = await store.read(
    "SELECT hash, session FROM idempotency WHERE tenant = ? AND principal = ? AND key = ?",
    [tenant, principal, name],
  );
  if (row === undefined) return undefined;
  if (row.hash === hash) return String(row.session);
  throw new BrokerError("id_reused", "Idempotency-Key: it was used before with another body; use a new key.", {
    details: { field: "Idempotency-Key" },
  });
}

/** One fixed id: a retried creation does not send the prompt again. */
export async function sendPrompt(session: Session, text: string, actor: Actor): Promise<void> {
  const payload = { type: "user", message: { role: "user", content: text } } as const;
  await session.command({ id: "create:prompt", event_type: "query", payload, delivery: "after_turn" }, actor);
}
