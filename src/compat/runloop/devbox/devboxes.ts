import type { DevboxStatus } from "../../../protocol/runloop.schema.ts";
import type { Actor, Session, Sessions } from "../../../sessions/port.ts";
import type { Database, RunloopOptions } from "../port.ts";
import { createDevboxRows, type Devbox, type DevboxRows, type ShutdownReason } from "./record.ts";
import { statusOf } from "./status.ts";

/** One that sleeps and wakes for months keeps the newest. */
const MOST_TRANSITIONS = 200;

/** Who says what the broker itself says. */
const BROKER: Actor = Object.freeze({ id: "broker" });

/** Statuses that are told in the log (spec 3.1). */
const TOLD: Partial<Record<DevboxStatus, string>> = {
  running: "devbox.running",
  suspended: "devbox.suspended",
  shutdown: "devbox.shutdown",
  failure: "devbox.failed",
};

/** All devboxes of this server: what is kept of each, beside the session that it mounts an agent on. */
export interface Devboxes {
  readonly rows: DevboxRows;
  /** Takes care of a devbox from now on. */
  adopt(devbox: Devbox): void;
  /** It could not be made after all. */
  forget(devbox: Devbox): Promise<void>;
  find(id: string): Promise<Devbox | undefined>;
  /** The open devbox of an axon. */
  openOf(sessionId: string): Devbox | undefined;
  statusOf(devbox: Devbox): Promise<DevboxStatus>;
  /** Changes what is kept, one change after the other. Resolves with what it is then. */
  change(id: string, part: Partial<Devbox>): Promise<Devbox | undefined>;
  /** Resolves with true when one of the statuses is reached, with false after so many milliseconds, or when the signal aborts. */
  reached(id: string, statuses: readonly DevboxStatus[], withinMs: number, signal: AbortSignal): Promise<boolean>;
  suspend(devbox: Devbox, actor: Actor): Promise<void>;
  resume(devbox: Devbox, actor: Actor): Promise<void>;
  shutDown(devbox: Devbox, reason: ShutdownReason, actor: Actor): Promise<void>;
  shutDownOf(sessionId: string, reason: ShutdownReason, actor: Actor): Promise<void>;
  /** Something came for an axon: a suspended devbox that is to wake of it does. */
  wake(sessionId: string, actor: Actor): Promise<void>;
  close(): void;
}

export async function createDevboxes(parts: {
  readonly sessions: Sessions;
  readonly database: Database;
  readonly options: RunloopOptions;
  readonly report: (error: unknown) => void;
}): Promise<Devboxes> {
  const { sessions, options, report } = parts;
  const rows = createDevboxRows(parts.database);
  const open = new Map<string, Devbox>();
  const bySession = new Map<string, string>();
  const waiting = new Set<() => void>();
  /** What is done to one devbox, one after the other. */
  const lines = new Map<string, Promise<unknown>>();

  const adopt = (devbox: Devbox): void => {
    open.set(devbox.id, devbox);
    bySession.set(devbox.session, devbox.id);
  };
  const find = async (id: string): Promise<Devbox | undefined> => open.get(id) ?? rows.find(id);
  const sessionOf = ({ session, tenant }: Devbox): Promise<Session | undefined> => sessions.find(session, tenant);

  const inLine = <T>(id: string, act: () => Promise<T>): Promise<T> => {
    const done = (lines.get(id) ?? Promise.resolve()).then(act);
    const quiet = done.then(
      () => undefined,
      () => undefined,
    );
    lines.set(id, quiet);
    void quiet.then(() => lines.get(id) === quiet && lines.delete(id));
    return done;
  };

  const save = async (devbox: Devbox): Promise<void> => {
    await rows.save(devbox);
    if (devbox.shutdown === undefined) return adopt(devbox);
    open.delete(devbox.id);
    if (bySession.get(devbox.session) === devbox.id) bySession.delete(devbox.session);
  };

  /** Writes down where it stands, if that is new, and tells it. */
  const note = async (id: string): Promise<void> => {
    const devbox = open.get(id);
    if (devbox === undefined) return;
    const session = await sessionOf(devbox);
    const status = statusOf(devbox, session);
    if (status !== devbox.transitions.at(-1)?.status) {
      const transition = {
        status,
        transition_time_ms: Date.now(),
        ...(status === "failure" && { failure_reason: "execution_failed" }),
      };
      const isUp = status === "running" && devbox.phase !== "suspended";
      const gone = status === "shutdown" && devbox.shutdown === undefined;
      await save({
        ...devbox,
        transitions: [...devbox.transitions, transition].slice(-MOST_TRANSITIONS),
        ...(isUp && { phase: "up" as const }),
        ...(gone && { phase: "shutdown", shutdown: { reason: "api_shutdown", at_ms: Date.now() } }),
      });
      await tell(devbox, status, session);
    }
    for (const look of waiting) look();
    if (status === "suspended" && devbox.on_idle === "shutdown" && devbox.phase === "up") {
      void shutDown(devbox, "idle", BROKER).catch(report);
    }
  };

  const tell = async (devbox: Devbox, status: DevboxStatus, session: Session | undefined): Promise<void> => {
    const event_type = TOLD[status];
    if (event_type === undefined || session === undefined || session.view().state === "ended") return;
    const reason = session.view().reason;
    const payload = { devbox_id: devbox.id, ...(reason !== undefined && { reason }) };
    const id = `${devbox.id}:${status}:${Date.now()}`;
    const bytes = Buffer.from(JSON.stringify(payload));
    await session.note({ id, event_type, origin: "SYSTEM_EVENT", payload: bytes }, BROKER);
  };

  const look = (id: string): Promise<void> => inLine(id, () => note(id));

  const change: Devboxes["change"] = (id, part) =>
    inLine(id, async () => {
      const devbox = await find(id);
      if (devbox === undefined) return undefined;
      const changed = { ...devbox, ...part };
      await save(changed);
      return changed;
    });

  const reached: Devboxes["reached"] = async (id, statuses, withinMs, signal) => {
    // What has happened while nobody watched (a restart) is written down first.
    await look(id);
    const { promise: over, resolve } = Promise.withResolvers<boolean>();
    const giveUp = (): void => resolve(false);
    const check = (): void => {
      const seen = open.get(id)?.transitions.at(-1)?.status;
      if (seen !== undefined && statuses.includes(seen)) resolve(true);
      else if (seen === undefined) resolve(statuses.includes("shutdown"));
    };
    const timer = setTimeout(giveUp, withinMs);
    signal.addEventListener("abort", giveUp, { once: true });
    waiting.add(check);
    check();
    try {
      return await over;
    } finally {
      clearTimeout(timer);
      signal.removeEventListener("abort", giveUp);
      waiting.delete(check);
    }
  };

  const shutDown: Devboxes["shutDown"] = async ({ id }, reason, actor) => {
    const devbox = open.get(id);
    if (devbox === undefined) return;
    const session = await sessionOf(devbox);
    const isLast = await inLine(id, async () => {
      const current = open.get(id);
      if (current === undefined) return false;
      const at_ms = Date.now();
      const transitions = [...current.transitions, { status: "shutdown" as const, transition_time_ms: at_ms }];
      await save({ ...current, phase: "shutdown", shutdown: { reason, at_ms }, transitions });
      return true;
    });
    if (isLast && session !== undefined && session.view().state !== "ended") {
      if (session.agentStanding() !== "none") await session.unmount(actor);
      await tell(devbox, "shutdown", session);
    }
    for (const check of waiting) check();
  };

  const resume: Devboxes["resume"] = async (devbox, actor) => {
    const status = statusOf(devbox, await sessionOf(devbox));
    if (!["suspending", "suspended"].includes(status)) return;
    // An agent that is still being stopped is not to be started beside itself.
    await reached(devbox.id, ["suspended", "running", "failure"], options.holdMs, new AbortController().signal);
    const session = await sessionOf(devbox);
    await change(devbox.id, { phase: "resuming" });
    await session?.resume(actor);
    await look(devbox.id);
  };

  for (const devbox of await rows.open()) {
    // The server died while it was made: the client has no answer, and its next try makes it.
    const unmade = devbox.phase === "new" && (await sessionOf(devbox))?.agentStanding() === "none";
    if (unmade) await rows.remove(devbox.id);
    else adopt(devbox);
  }
  const unwatch = sessions.watch(undefined, (view) => {
    const id = bySession.get(view.id);
    if (id !== undefined) look(id).catch(report);
  });
  const sweep = setInterval(() => {
    const nowMs = Date.now();
    for (const devbox of open.values()) {
      if ((devbox.expires_at_ms ?? nowMs + 1) > nowMs) continue;
      shutDown(devbox, "keep_alive_timeout", BROKER).catch(report);
    }
  }, options.sweepMs).unref();

  return {
    rows,
    adopt,
    async forget({ id, session }) {
      open.delete(id);
      bySession.delete(session);
      await rows.remove(id);
    },
    find,
    openOf: (sessionId) => open.get(bySession.get(sessionId) ?? ""),
    // A list of many that are shut down opens no session.
    statusOf: async (devbox) => statusOf(devbox, devbox.shutdown === undefined ? await sessionOf(devbox) : undefined),
    change,
    reached,
    async suspend(devbox, actor) {
      const session = await sessionOf(devbox);
      await change(devbox.id, { phase: "suspended" });
      await session?.suspend(actor);
      await look(devbox.id);
    },
    resume,
    shutDown,
    async shutDownOf(sessionId, reason, actor) {
      const devbox = open.get(bySession.get(sessionId) ?? "");
      if (devbox !== undefined) await shutDown(devbox, reason, actor);
    },
    async wake(sessionId, actor) {
      const devbox = open.get(bySession.get(sessionId) ?? "");
      if (devbox?.phase === "suspended" && devbox.resumes_on_event) await resume(devbox, actor);
    },
    close() {
      unwatch();
      clearInterval(sweep);
    },
  };
}
