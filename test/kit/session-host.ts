import { randomUUID } from "node:crypto";
import { join } from "node:path";
import { createInlineRunner } from "../../src/agents/inline-runner.ts";
import { processLauncher } from "../../src/agents/process.ts";
import { createLogs } from "../../src/log/logs.ts";
import type { Command } from "../../src/protocol/commands.ts";
import type { Delivery, Envelope } from "../../src/protocol/events.ts";
import { seq } from "../../src/protocol/ids.ts";
import type { JsonObject } from "../../src/protocol/json.ts";
import { BrokerError, type ProblemCode } from "../../src/protocol/problems.ts";
import type { NewSession } from "../../src/protocol/sessions.schema.ts";
import { createClaudeHosting } from "../../src/sessions/claude-hosting.ts";
import { createSessions, type SessionsOptions } from "../../src/sessions/manager.ts";
import { ASK_PEOPLE, type AuditNote, type Decide, type Session, type Sessions } from "../../src/sessions/port.ts";
import { openStore, type SqliteStore } from "../../src/store/sqlite.ts";
import { type FakeBehaviour, fakeAgentBinary } from "./fake-agent-spec.ts";
import { makeTempDir } from "./temp-dir.ts";

/** What broker.ts would fill in: policies, and the audit record. */
export interface HostPorts {
  readonly decide?: Decide;
  readonly notes?: AuditNote[];
}

/** Sessions on a real store with the fake agent, without a network. */
export interface SessionHost extends AsyncDisposable {
  readonly sessions: Sessions;
  readonly store: SqliteStore;
  readonly dataDir: string;
  /** What the sessions reported as broken. */
  readonly reports: unknown[];
  create(input?: NewSession): Promise<Session>;
  /** Closes everything and opens it again on the same data directory, as a restarted server would. */
  reopen(behaviour?: FakeBehaviour): Promise<SessionHost>;
}

export const ACTOR = { id: "key-a", roles: ["operator"] as const };
const QUICK: Partial<SessionsOptions> = {
  stopPatience: { eofMs: 500, termMs: 500 },
  closePatience: { eofMs: 300, termMs: 300 },
};

async function openAt(
  dataDir: string,
  behaviour: FakeBehaviour,
  options: Partial<SessionsOptions>,
  ports: HostPorts,
  done: () => void,
): Promise<SessionHost> {
  const store = await openStore({ dataDir });
  const command = fakeAgentBinary(dataDir, behaviour);
  const workspaceRoot = join(dataDir, "workspaces");
  const reports: unknown[] = [];
  const runner = createInlineRunner({
    launcher: processLauncher,
    settings: { dataDir, workspaceRoot, binary: async () => ({ command }) },
  });
  const hosting = createClaudeHosting({
    runner,
    store,
    agentsStay: false,
    binary: async () => ({ command, version: "2.1.332" }),
    sharedEnv: {},
    lineLimitBytes: 1024 * 1024,
  });
  const report = (_id: string, error: unknown): void => void reports.push(error);
  const sessions = await createSessions({
    store,
    logs: createLogs(store),
    hosting,
    dataDir,
    workspaceRoot,
    report,
    options: { ...QUICK, ...options },
    ...(ports.decide && { decideFor: () => ports.decide ?? ASK_PEOPLE }),
    audit: (_session, note) => {
      // Who made a session is test/api/audit.test.ts's.
      if (note.kind !== "session") ports.notes?.push(note);
      return { sql: "UPDATE sessions SET state = state WHERE id = ?", params: [""] };
    },
  });
  const close = async (): Promise<void> => {
    await sessions.close();
    await runner.close();
    await store.close();
  };
  return {
    sessions,
    store,
    dataDir,
    reports,
    async create(input = {}) {
      const view = await sessions.create(input, { tenant: "default", actor: ACTOR });
      const session = await sessions.find(view.id, "default");
      if (session === undefined) throw new Error("the session that was just made is not there");
      return session;
    },
    async reopen(next = behaviour) {
      await close();
      return openAt(dataDir, next, options, ports, done);
    },
    async [Symbol.asyncDispose]() {
      await close();
      done();
    },
  };
}

export function openSessionHost(
  behaviour: FakeBehaviour = {},
  options: Partial<SessionsOptions> = {},
  ports: HostPorts = {},
): Promise<SessionHost> {
  const folder = makeTempDir();
  return openAt(folder.path, behaviour, options, ports, () => folder[Symbol.dispose]());
}

/** Everything that a reader of a session sees, from the first byte on. */
export interface Watched extends Disposable {
  readonly events: Envelope<JsonObject>[];
  /** The first event, seen already or yet to come, that fits. */
  first(fits: (event: Envelope<JsonObject>) => boolean): Promise<Envelope<JsonObject>>;
  of(eventType: string): Envelope<JsonObject>[];
}

export function watchSession(session: Session, after = 0): Watched {
  const events: Envelope<JsonObject>[] = [];
  const waiting = new Set<() => void>();
  const stop = new AbortController();
  const read = async (): Promise<void> => {
    for await (const batch of session.log.follow(seq(after), stop.signal)) {
      if (batch.kind === "gap") continue;
      for (const event of batch.events) events.push(JSON.parse(Buffer.from(event.envelope).toString("utf8")));
      for (const wake of waiting) wake();
    }
  };
  void read();
  return {
    events,
    of: (eventType) => events.filter((event) => event.event_type === eventType),
    async first(fits) {
      for (;;) {
        const found = events.find(fits);
        if (found !== undefined) return found;
        const { promise, resolve } = Promise.withResolvers<void>();
        waiting.add(resolve);
        await promise;
        waiting.delete(resolve);
      }
    },
    [Symbol.dispose]: () => stop.abort(),
  };
}

export const query = (
  text: string,
  more: { id?: string; delivery?: Delivery; uuid?: string } = {},
): Command & { event_type: "query" } => ({
  id: more.id ?? randomUUID(),
  event_type: "query",
  delivery: more.delivery ?? "after_turn",
  payload: {
    type: "user",
    message: { role: "user", content: text },
    ...(more.uuid !== undefined && { uuid: more.uuid }),
  },
});

export const control = (subtype: string, more: JsonObject = {}, requestId: string = randomUUID()): Command => ({
  id: randomUUID(),
  event_type: "control_request",
  payload: { type: "control_request", request_id: requestId, request: { ...more, subtype } },
});

export const answer = (requestId: string, response: JsonObject): Command => ({
  id: randomUUID(),
  event_type: "control_response",
  payload: { type: "control_response", response: { subtype: "success", request_id: requestId, response } },
});

/** The code of the problem that a call is refused with. */
export async function problemOf(call: Promise<unknown>): Promise<ProblemCode | "no problem"> {
  try {
    await call;
    return "no problem";
  } catch (error) {
    if (error instanceof BrokerError) return error.code;
    throw error;
  }
}
