import { createHash } from "node:crypto";
import type { StopPatience } from "../agents/port.ts";
import { sweep } from "../agents/sweep.ts";
import type { EventLog, Logs } from "../log/port.ts";
import type { SessionView } from "../protocol/events.ts";
import { seq } from "../protocol/ids.ts";
import { BrokerError } from "../protocol/problems.ts";
import type { NewSession } from "../protocol/sessions.schema.ts";
import type { Store, Write } from "../store/port.ts";
import { earlierCreation, insertNew, type Owner, sendPrompt } from "./creation.ts";
import type { Engine } from "./engine.ts";
import { forkInput, planFork } from "./fork.ts";
import type { Hosting } from "./hosting.ts";
import { countSessions, listSessions } from "./list.ts";
import { ASK_PEOPLE, type AuditNote, type Decide, type Sessions, type ToldEvent } from "./port.ts";
import { deleteSession, readInitialized, readSession, type SessionRow } from "./rows.ts";
import { createSession, type ManagedSession, type SessionParts } from "./session.ts";
import { createSlots, type SlotLimits } from "./slots.ts";
import { restoredState } from "./state.ts";
import { dropStrays } from "./stray-runs.ts";
import type { Patience } from "./timers.ts";

export interface SessionsParts {
  readonly store: Store;
  readonly logs: Logs;
  readonly hosting: Hosting;
  readonly dataDir: string;
  readonly workspaceRoot: string;
  readonly options?: Partial<SessionsOptions>;
  readonly now?: () => number;
  /** Policy before people, for one session. Default: people are asked. */
  readonly decideFor?: (session: DecidedSession) => Decide;
  /** The write for one note of the audit record. Default: none is kept. */
  readonly audit?: (session: { readonly id: string; readonly tenant: string }, note: AuditNote, nowMs: number) => Write;
  /** Writes that tell others of a system event, in its transaction. Default: nobody is told. */
  readonly outbox?: (session: { readonly id: string; readonly tenant: string }, event: ToldEvent) => readonly Write[];
  /** A session was made that takes over what holds for another one (its policy). */
  readonly inherited?: (id: string) => Promise<void>;
  /** A session was purged: what others keep of it can go. */
  readonly purged?: (id: string, tenant: string) => void;
  /** A session's log cannot be written, or its state is broken: for the server's own log. */
  readonly report: (sessionId: string, error: unknown) => void;
}

/** A session as policies see it. */
export interface DecidedSession {
  readonly id: string;
  readonly tenant: string;
  readonly cwd: string;
  /** Where its runner's machine has the tenants' folders; undefined = this machine, or not known yet. */
  readonly remoteRoot: () => string | undefined;
}

export interface SessionsOptions extends Patience, SlotLimits {
  /** How long the CLI may take from spawn to its answer to initialize. */
  readonly startTimeoutMs: number;
  /** How long an idle process is kept for sessions that say nothing of their own; 0 = for ever. */
  readonly idleTimeoutMs: number;
  /** The ladder when a session ends, and the shorter one when the server does. */
  readonly stopPatience: StopPatience;
  readonly closePatience: StopPatience;
}

const SESSIONS_DEFAULTS: SessionsOptions = Object.freeze({
  startTimeoutMs: 60_000,
  controlTimeoutMs: 120_000,
  ownerGraceMs: 5_000,
  slowControlTimeoutMs: 15 * 60_000,
  stallMs: 5 * 60_000,
  stallRestartMs: 10_000,
  rerunMs: 20_000,
  idleTimeoutMs: 15 * 60_000,
  liveAgents: 64,
  liveAgentsPerTenant: 64,
  startingAgents: 4,
  stopPatience: { eofMs: 5000, termMs: 5000 },
  closePatience: { eofMs: 1500, termMs: 1500 },
});

/** All sessions of this server. Recovers those that a crash left with an agent before it resolves. */
export async function createSessions(parts: SessionsParts): Promise<Sessions> {
  const { store, logs, hosting } = parts;
  const options = { ...SESSIONS_DEFAULTS, ...parts.options };
  const now = parts.now ?? Date.now;
  const opened = new Map<string, Promise<ManagedSession | undefined>>();
  const live = new Map<string, ManagedSession>();
  /** Sessions that are being opened: the run that each one is about to join, or has begun. */
  const joining = new Map<string, () => string | undefined>();
  const reading = new Set<Promise<unknown>>();
  const watchers = new Set<{ tenant: string | undefined; changed: (view: SessionView) => void }>();
  const slots = createSlots(options, (tenant) => {
    let longest: Engine | undefined;
    for (const { tenant: owner, engine } of live.values()) {
      const since = engine.broken() || (tenant !== undefined && owner !== tenant) ? undefined : engine.idleSinceMs();
      if (since !== undefined && since < (longest?.idleSinceMs() ?? Number.POSITIVE_INFINITY)) longest = engine;
    }
    longest?.apply({ type: "hibernate" });
  });
  const creations = new Map<string, Promise<SessionView>>();
  const closing = new AbortController();

  const notify = (id: string): void => {
    const session = live.get(id);
    if (session === undefined || watchers.size === 0) return;
    const view = session.view();
    for (const watcher of watchers) {
      if (watcher.tenant === undefined || watcher.tenant === session.tenant) watcher.changed(view);
    }
  };

  const load = async (id: string): Promise<ManagedSession | undefined> => {
    const read = readSession(store, id).then((found) => {
      if (found !== undefined) joining.set(id, () => found.snapshot.run);
      return found;
    });
    reading.add(read);
    const row = await read.finally(() => reading.delete(read));
    return row && openRow(row).finally(() => joining.delete(id));
  };

  const openRow = async (row: SessionRow): Promise<ManagedSession> => {
    const { id, snapshot } = row;
    const joined =
      snapshot.run === undefined ? undefined : await hosting.join(row, snapshot.run, snapshot.process, closing.signal);
    // Another machine's processes are its runner's to sweep.
    if (joined === undefined && snapshot.process !== undefined && hosting.isLocal(row.spec))
      await sweep(snapshot.process);
    const reached = seq(Math.max(row.head, snapshot.seq));
    const { log, last, jumped } = await logs.open(
      id,
      // Of an agent that cannot be read yet nobody knows what was shown: numbers go on behind everything that may have been.
      joined?.isAway === false ? { last: reached, turnRuns: snapshot.current !== undefined } : undefined,
    );
    const initialized = joined && (await readInitialized(store, id));
    const session = createSession(partsOf(row, log), restoredState(snapshot, last, initialized));
    joining.set(id, () => session.engine.state().run);
    // A server that stops waits for nobody who still reads what an agent said: the next one reads it again.
    await Promise.race([session.engine.recover(joined, jumped), whenAborted(closing.signal)]);
    live.set(id, session);
    return session;
  };

  const partsOf = (row: SessionRow, log: EventLog): SessionParts => ({
    ...parts,
    ...options,
    row,
    log,
    now,
    slots,
    patience: options,
    defaultIdleTimeoutMs: options.idleTimeoutMs,
    decide: (question) => {
      // A mount may have chosen another folder since.
      const cwd = live.get(row.id)?.spec.cwd ?? row.spec.cwd;
      const remoteRoot = () => hosting.placeOf(row.id)?.workspaceRoot;
      return (parts.decideFor?.({ id: row.id, tenant: row.tenant, cwd, remoteRoot }) ?? ASK_PEOPLE)(question);
    },
    audit: (note, nowMs) => (parts.audit === undefined ? [] : [parts.audit(row, note, nowMs)]),
    outbox: ({ payload, ...draft }, atMs) =>
      payload instanceof Uint8Array ? [] : (parts.outbox?.(row, { ...draft, payload, atMs }) ?? []),
    changed: () => {
      notify(row.id);
      // When its step is done.
      queueMicrotask(slots.seek);
    },
    failed: (error) => parts.report(row.id, error),
    runnerName: () => hosting.placeOf(row.id)?.name,
  });

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
    const wanted = input.resume_from;
    const forkParts = { store, readTranscript: hosting.readTranscript };
    const origin = wanted && (await planFork(forkParts, wanted, owner.tenant, now()));
    const audit = (id: string, note: AuditNote): Write[] =>
      parts.audit === undefined ? [] : [parts.audit({ id, tenant: owner.tenant }, note, now())];
    const id = await insertNew({ ...parts, isLocal: hosting.isLocal }, input, owner, key, now(), origin, audit);
    if (origin !== undefined) await parts.inherited?.(id);
    return id;
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
    async fork(id, input, owner) {
      const parent = await readSession(store, id);
      if (parent === undefined) throw new BrokerError("not_found", "There is no session with this id.");
      return sessions.create(forkInput(parent, input), owner);
    },
    async find(id, tenant) {
      const session = await open(id);
      return session !== undefined && (tenant === undefined || session.tenant === tenant) ? session : undefined;
    },
    list: (filter) => listSessions(store, filter, (id) => live.get(id)?.view()),
    count: (filter) => countSessions(store, filter),
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
      parts.purged?.(id, session.tenant);
      await hosting.removeFolders(session);
    },
    async close({ stopAgents } = {}) {
      closing.abort();
      const all = await Promise.all([...opened.values()].map((loading) => loading.catch(() => undefined)));
      await Promise.all(
        all.map((session) => {
          if (session === undefined) return undefined;
          const stays = hosting.agentStays(session.spec);
          // Those elsewhere stay whatever is asked: their link may be gone by now.
          const stops = stopAgents === undefined ? !stays : stopAgents && hosting.isLocal(session.spec);
          return session.engine.shutDown(stops ? options.closePatience : undefined);
        }),
      );
      await Promise.all([...live.keys()].map((id) => logs.close(id)));
    },
  };

  await openLeftovers(store, open, parts.report);
  await hosting.watchRunners(async (runner) => {
    // Of these nobody knows yet which run they are about to join. How long the others take is their own runner's affair.
    await Promise.allSettled(reading);
    const lived = [...live.values()].map((session) => session.engine.state().run);
    await dropStrays(runner, new Set([...lived, ...[...joining.values()].map((runOf) => runOf())]));
  });
  return sessions;
}

/** Sessions that need the server though no client asks. Those whose runner dials in open when it has done so: nobody else waits for that. */
async function openLeftovers(
  store: Store,
  open: (id: string) => Promise<unknown>,
  report: SessionsParts["report"],
): Promise<void> {
  const sql =
    "SELECT id, session_runner.session IS NOT NULL AS elsewhere FROM sessions LEFT JOIN session_runner ON session = id AND current = 1 WHERE live = 1";
  const leftovers = await store.read(sql);
  const opening = leftovers.map(async (row) => {
    const id = String(row["id"]);
    const opened = open(id);
    if (row["elsewhere"] !== 1) await opened;
    else opened.catch((error: unknown) => report(id, error));
  });
  await Promise.all(opening);
}

function whenAborted(signal: AbortSignal): Promise<void> {
  const { promise, resolve } = Promise.withResolvers<void>();
  if (signal.aborted) resolve();
  signal.addEventListener("abort", () => resolve(), { once: true });
  return promise;
}
