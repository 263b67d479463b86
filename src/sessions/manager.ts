import { createHash, randomUUID } from "node:crypto";
import { nanoid } from "nanoid";
import { claudeArguments } from "../agents/arguments.ts";
import { agentEnvironment } from "../agents/environment.ts";
import { removeFolders, sessionFolders } from "../agents/folders.ts";
import type { StopPatience } from "../agents/port.ts";
import { sweep } from "../agents/sweep.ts";
import type { Logs } from "../log/port.ts";
import type { SessionView } from "../protocol/events.ts";
import { seq } from "../protocol/ids.ts";
import { BrokerError } from "../protocol/problems.ts";
import type { NewSession } from "../protocol/sessions.schema.ts";
import type { Store, Write } from "../store/port.ts";
import { isSlowControl } from "./controls.ts";
import type { Hosting } from "./hosting.ts";
import { listSessions } from "./list.ts";
import { type Actor, ASK_PEOPLE, type AuditNote, type Decide, type Sessions, type ToldEvent } from "./port.ts";
import { deleteSession, insertSession, readSession, type SessionRow } from "./rows.ts";
import { createSession, type ManagedSession } from "./session.ts";
import { newState, restoredState, sessionState, snapshotOf } from "./state.ts";

export interface SessionsParts {
  readonly store: Store;
  readonly logs: Logs;
  readonly hosting: Hosting;
  readonly dataDir: string;
  readonly workspaceRoot: string;
  readonly options?: Partial<SessionsOptions>;
  readonly now?: () => number;
  /** Policy before people, for one session. Default: people are asked. */
  readonly decideFor?: (session: { readonly id: string; readonly tenant: string; readonly cwd: string }) => Decide;
  /** The write for one note of the audit record. Default: none is kept. */
  readonly audit?: (session: { readonly id: string; readonly tenant: string }, note: AuditNote, nowMs: number) => Write;
  /** Writes that tell others of a system event, in its transaction. Default: nobody is told. */
  readonly outbox?: (session: { readonly id: string; readonly tenant: string }, event: ToldEvent) => readonly Write[];
  /** A session was purged: what others keep of it can go. */
  readonly purged?: (id: string) => void;
  /** A session's log cannot be written, or its state is broken: for the server's own log. */
  readonly report: (sessionId: string, error: unknown) => void;
}

export interface SessionsOptions {
  /** How long the CLI may take from spawn to its answer to initialize. */
  readonly startTimeoutMs: number;
  /** The ladder when a session ends, and the shorter one when the server does. */
  /** How long the CLI may take to answer a control_request; and one that calls a model, a server or a person. */
  readonly controlTimeoutMs: number;
  readonly slowControlTimeoutMs: number;
  /** How long a client that serves hooks or MCP servers may be away before its requests get an error. */
  readonly ownerGraceMs: number;
  readonly stopPatience: StopPatience;
  readonly closePatience: StopPatience;
}

const SESSIONS_DEFAULTS: SessionsOptions = Object.freeze({
  startTimeoutMs: 60_000,
  controlTimeoutMs: 120_000,
  ownerGraceMs: 5_000,
  slowControlTimeoutMs: 15 * 60_000,
  stopPatience: { eofMs: 5000, termMs: 5000 },
  closePatience: { eofMs: 1500, termMs: 1500 },
});

type Owner = Parameters<Sessions["create"]>[1];

/** All sessions of this server. Recovers those that a crash left with an agent before it resolves. */
export async function createSessions(parts: SessionsParts): Promise<Sessions> {
  const { store, logs, hosting } = parts;
  const options = { ...SESSIONS_DEFAULTS, ...parts.options };
  const now = parts.now ?? Date.now;
  const opened = new Map<string, Promise<ManagedSession | undefined>>();
  const live = new Map<string, ManagedSession>();
  const watchers = new Set<{ tenant: string | undefined; changed: (view: SessionView) => void }>();
  const creations = new Map<string, Promise<SessionView>>();

  const notify = (id: string): void => {
    const session = live.get(id);
    if (session === undefined || watchers.size === 0) return;
    const view = session.view();
    for (const watcher of watchers) {
      if (watcher.tenant === undefined || watcher.tenant === session.tenant) watcher.changed(view);
    }
  };

  const load = async (id: string): Promise<ManagedSession | undefined> => {
    const row = await readSession(store, id);
    if (row === undefined) return undefined;
    if (row.snapshot.process !== undefined) await sweep(row.snapshot.process);
    const { log, last, jumped } = await logs.open(id);
    const told = sessionState(restoredState(row.snapshot, last, "hibernated"));
    const session = createSession(
      {
        row,
        store,
        log,
        hosting,
        now,
        startTimeoutMs: options.startTimeoutMs,
        stopPatience: options.stopPatience,
        ownerGraceMs: options.ownerGraceMs,
        decide: parts.decideFor?.({ id, tenant: row.tenant, cwd: row.spec.cwd }) ?? ASK_PEOPLE,
        audit: (note, nowMs) => (parts.audit === undefined ? [] : [parts.audit(row, note, nowMs)]),
        outbox: ({ payload, ...draft }, atMs) =>
          payload instanceof Uint8Array ? [] : (parts.outbox?.(row, { ...draft, payload, atMs }) ?? []),
        controlTimeoutMs: (subtype) =>
          isSlowControl(subtype) ? options.slowControlTimeoutMs : options.controlTimeoutMs,
        changed: () => notify(id),
        failed: (error) => parts.report(id, error),
      },
      restoredState(row.snapshot, last, told),
    );
    live.set(id, session);
    session.engine.apply({ type: "recovered", jumped });
    await session.engine.settled();
    return session;
  };

  const open = (id: string): Promise<ManagedSession | undefined> => {
    const known = opened.get(id);
    if (known !== undefined) return known;
    const loading = load(id).then((session) => {
      if (session === undefined) opened.delete(id);
      return session;
    });
    loading.catch(() => opened.delete(id));
    opened.set(id, loading);
    return loading;
  };

  const insert = async (input: NewSession, owner: Owner, key: readonly string[]): Promise<string> => {
    const { row, keyWrite } = await newRow(parts, input, owner, key, now());
    await store.write([insertSession(row), ...keyWrite]);
    return row.id;
  };

  const createOnce = async (input: NewSession, owner: Owner): Promise<SessionView> => {
    const hash = createHash("sha256").update(JSON.stringify(input)).digest("hex");
    const key = owner.idempotencyKey === undefined ? [] : [owner.tenant, owner.actor.id, owner.idempotencyKey, hash];
    const earlier = key.length === 0 ? undefined : await earlierCreation(store, key);
    const session = await open(earlier ?? (await insert(input, owner, key)));
    if (session === undefined)
      throw new BrokerError("not_found", "That session was purged; use a new Idempotency-Key.");
    if (input.prompt !== undefined) await sendPrompt(session, input.prompt, owner.actor);
    notify(session.id);
    return session.view();
  };

  const sessions: Sessions = {
    create(input, owner) {
      if (owner.idempotencyKey === undefined) return createOnce(input, owner);
      // Two retries at once: the second waits for the first, then finds its row.
      const key = JSON.stringify([owner.tenant, owner.actor.id, owner.idempotencyKey]);
      const before = creations.get(key) ?? Promise.resolve(undefined);
      const mine = before.catch(() => undefined).then(() => createOnce(input, owner));
      creations.set(key, mine);
      void mine.catch(() => undefined).then(() => creations.get(key) === mine && creations.delete(key));
      return mine;
    },
    async find(id, tenant) {
      const session = await open(id);
      return session !== undefined && (tenant === undefined || session.tenant === tenant) ? session : undefined;
    },
    list: (filter) => listSessions(store, filter, (id) => live.get(id)?.view()),
    watch(tenant, changed) {
      const watcher = { tenant, changed };
      watchers.add(watcher);
      return () => watchers.delete(watcher);
    },
    async purge(id) {
      const session = await open(id);
      if (session === undefined) return;
      await session.end();
      opened.delete(id);
      live.delete(id);
      await logs.purge(id);
      await store.write(deleteSession(id));
      parts.purged?.(id);
      await removeFolders({
        workspaceRoot: parts.workspaceRoot,
        dataDir: parts.dataDir,
        tenant: session.tenant,
        sessionId: id,
      });
    },
    async close() {
      const all = await Promise.all([...opened.values()].map((loading) => loading.catch(() => undefined)));
      await Promise.all(all.map((session) => session?.engine.shutDown(options.closePatience)));
      await Promise.all([...live.keys()].map((id) => logs.close(id)));
    },
  };

  const leftovers = await store.read("SELECT id FROM sessions WHERE live = 1");
  await Promise.all(leftovers.map((row) => open(String(row.id))));
  return sessions;
}

async function newRow(
  parts: SessionsParts,
  input: NewSession,
  owner: Owner,
  key: readonly string[],
  now: number,
): Promise<{ row: SessionRow; keyWrite: { sql: string; params: (string | number)[] }[] }> {
  const id = `ses_${nanoid()}`;
  const agent = input.agent ?? {};
  const state = newState(randomUUID());
  const { workspaceRoot, dataDir } = parts;
  const cwd = input.cwd === undefined ? {} : { cwd: input.cwd };
  // Refused here, with the field's name, rather than at the first message: a dry run of what the start will need.
  claudeArguments(agent, { kind: "new", cliSessionId: state.cliSessionId, optionsFolder: "/" });
  agentEnvironment({ home: "/", configDir: "/", shared: {}, options: agent });
  const folders = await sessionFolders({ workspaceRoot, dataDir, tenant: owner.tenant, sessionId: id, ...cwd });
  const row: SessionRow = {
    id,
    tenant: owner.tenant,
    name: input.name ?? null,
    metadata: input.metadata ?? {},
    createdAtMs: now,
    updatedAtMs: now,
    head: seq(0),
    spec: { agent, cwd: folders.relativeCwd, ownFolder: input.cwd === undefined },
    snapshot: snapshotOf(state),
  };
  const sql =
    "INSERT INTO idempotency (tenant, principal, key, hash, session, created_at_ms) VALUES (?, ?, ?, ?, ?, ?)";
  return { row, keyWrite: key.length === 0 ? [] : [{ sql, params: [...key, id, now] }] };
}

/** @throws BrokerError id_reused when the key came with another body before */
async function earlierCreation(store: Store, key: readonly string[]): Promise<string | undefined> {
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
async function sendPrompt(session: ManagedSession, text: string, actor: Actor): Promise<void> {
  const payload = { type: "user", message: { role: "user", content: text } } as const;
  await session.command({ id: "create:prompt", event_type: "query", payload, delivery: "after_turn" }, actor);
}
