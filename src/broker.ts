import { realpathSync } from "node:fs";
import { join } from "node:path";
import { pino } from "pino";
import { resolveClaude } from "./agents/claude-binary.ts";
import { processLauncher } from "./agents/process.ts";
import { answerLinks } from "./api/answer-link.ts";
import type { ApiOptions, Readiness, ReadinessCheck } from "./api/config.ts";
import { createApi } from "./api/server.ts";
import { auditWrite } from "./auth/audit.ts";
import { createAuth } from "./auth/auth.ts";
import { decide } from "./auth/policy/decide.ts";
import { createPolicies, type Policies } from "./auth/policy/policies.ts";
import { questionOf } from "./auth/policy/question.ts";
import { createLogs } from "./log/logs.ts";
import { type BrokerOptions, type ResolvedOptions, resolveOptions } from "./options.ts";
import { BrokerError } from "./protocol/problems.ts";
import { createClaudeHosting } from "./sessions/claude-hosting.ts";
import { createSessions, type SessionsOptions } from "./sessions/manager.ts";
import type { Decide } from "./sessions/port.ts";
import { makeDirectories } from "./store/make-directories.ts";
import type { Store } from "./store/port.ts";
import { openStore } from "./store/sqlite.ts";
import { VERSION } from "./version.ts";
import type { WebhookOptions } from "./webhooks/options.ts";
import { createWebhooks } from "./webhooks/webhooks.ts";

/** Connections that may wait to be accepted: Fastify's own 511 makes a storm of reconnects ten times slower (design 8). */
const LISTEN_BACKLOG = 4096;

/** An answer of /readyz is good for this long: probes come from anybody, and each one touches the disk. */
const READINESS_MS = 1000;

/** A server that listens. */
export interface Broker {
  /** The bare origin, such as `http://127.0.0.1:4400`. */
  readonly url: string;
  readonly port: number;
  readonly version: string;
  /** The first operator key, when this start made it: shown once, stored hashed. */
  readonly firstKey: string | undefined;
  /** A URL for a person to click: the console, with a ticket of 15 minutes. */
  consoleUrl(): Promise<string>;
  /** Drains: sockets get the come-back code, agents are stopped, logs flushed, files let go. */
  close(): Promise<void>;
}

/** Settings that only code can give: for tests and embedding. */
export interface BrokerTuning {
  readonly sessions?: Partial<SessionsOptions>;
  readonly api?: Partial<ApiOptions>;
  readonly webhooks?: Partial<WebhookOptions>;
}

/**
 * Starts a whole server: the only place that knows every room.
 * @throws BrokerError config_invalid, port_in_use, data_dir_unusable, data_dir_in_use, data_dir_newer
 */
export async function createBroker(given: Partial<BrokerOptions> = {}, tuning: BrokerTuning = {}): Promise<Broker> {
  const options = resolveOptions(given);
  // Standard output belongs to `serve --json`.
  const logger = pino({ level: options.logLevel }, pino.destination(2));
  const store = await openStore({ dataDir: options.dataDir });
  try {
    makeWorkspaceRoot(options.workspaceRoot);
    return await compose(options, tuning, store, logger);
  } catch (error) {
    await store.close();
    throw error;
  }
}

async function compose(
  options: ResolvedOptions,
  tuning: BrokerTuning,
  store: Store,
  logger: pino.Logger,
): Promise<Broker> {
  const { dataDir, workspaceRoot } = options;
  const auth = await createAuth({ store, ...(options.adminKey !== undefined && { adminKey: options.adminKey }) });
  const binary = rememberBinary(options.claudeBin);
  const hosting = createClaudeHosting({
    launcher: processLauncher,
    binary,
    dataDir,
    workspaceRoot,
    sharedEnv: options.agentEnv,
    lineLimitBytes: options.agentLineLimitBytes,
  });
  const webhooks = await createWebhooks({
    store,
    allowedHosts: options.webhookAllowedHosts,
    answerLink: answerLinks(auth, options.publicUrl),
    report: (webhook, error) => logger.error({ webhook, err: error }, "webhook.broken"),
    ...(tuning.webhooks && { options: tuning.webhooks }),
  });
  const logs = createLogs(webhooks.store);
  const policies = await createPolicies(store);
  const report = (session: string, error: unknown): void => logger.error({ session, err: error }, "session.broken");
  const sessions = await createSessions({
    store,
    logs,
    hosting,
    dataDir,
    workspaceRoot,
    report,
    decideFor: (session) => decideFor(policies, realpathSync(workspaceRoot), session),
    purged: policies.forgetSession,
    audit: (session, note, nowMs) => auditWrite({ ...note, tenant: session.tenant, session_id: session.id }, nowMs),
    outbox: webhooks.outbox,
    ...(tuning.sessions && { options: tuning.sessions }),
  });
  const tls =
    options.tlsCert === undefined || options.tlsKey === undefined
      ? undefined
      : { cert: options.tlsCert, key: options.tlsKey };
  const config: ApiOptions = {
    version: VERSION,
    ready: rememberFor(READINESS_MS, () => readiness(store, binary)),
    tls,
    allowedOrigins: options.allowedOrigins,
    allowedHosts: [
      ...options.allowedHosts,
      ...(options.publicUrl === undefined ? [] : [new URL(options.publicUrl).hostname]),
    ],
    queryLimitBytes: options.queryLimitBytes,
    inboundLimitBytes: options.inboundLimitBytes,
    heartbeatMs: options.heartbeatMs,
    ...tuning.api,
  };
  const app = await createApi({ auth, sessions, policies, webhooks, config, logger });
  const close = async (): Promise<void> => {
    await app.close();
    await sessions.close();
    await webhooks.close();
    await store.close();
  };
  const url = await listen(app, options).catch(async (error: unknown) => {
    await close();
    throw error;
  });
  return {
    url,
    port: Number(new URL(url).port),
    version: VERSION,
    firstKey: auth.createdKey,
    async consoleUrl() {
      const { ticket } = await auth.createConsoleTicket();
      return `${url}/?ticket=${ticket}`;
    },
    close,
  };
}

function makeWorkspaceRoot(path: string): void {
  try {
    makeDirectories(path, 0o700);
  } catch (cause) {
    const reason = cause instanceof Error ? cause.message : String(cause);
    const message = `PATCHBAY_WORKSPACE_ROOT: ${path} cannot be made (${reason}). Name a folder that this user can write.`;
    throw new BrokerError("config_invalid", message, { cause, details: { name: "PATCHBAY_WORKSPACE_ROOT" } });
  }
}

/** Policy before people: the documents of the session and its tenant as they are at that moment. */
function decideFor(
  policies: Policies,
  root: string,
  { id, tenant, cwd }: { id: string; tenant: string; cwd: string },
): Decide {
  const folder = join(root, tenant, cwd);
  return (question) =>
    decide({ tenant: policies.forTenant(tenant), session: policies.forSession(id) }, questionOf(question, folder));
}

type Listening = Awaited<ReturnType<typeof createApi>>;

async function listen(app: Listening, { host, port, tlsCert }: ResolvedOptions): Promise<string> {
  try {
    await app.listen({ host, port, backlog: LISTEN_BACKLOG });
  } catch (cause) {
    throw listenProblem(cause, host, port);
  }
  const address = app.server.address();
  const bound = typeof address === "object" && address !== null ? address.port : port;
  const shown = host === "0.0.0.0" || host === "::" ? "127.0.0.1" : host;
  return `${tlsCert === undefined ? "http" : "https"}://${shown.includes(":") ? `[${shown}]` : shown}:${bound}`;
}

function listenProblem(cause: unknown, host: string, port: number): unknown {
  const code = cause instanceof Error && "code" in cause ? cause.code : undefined;
  const details = { host, port };
  if (code === "EADDRINUSE") {
    return new BrokerError(
      "port_in_use",
      `${host}:${port} is in use. Stop what holds it, or choose another PATCHBAY_PORT (0 = any free one).`,
      { cause, details },
    );
  }
  if (code === "EACCES" || code === "EADDRNOTAVAIL" || code === "ENOTFOUND") {
    return new BrokerError(
      "config_invalid",
      `Cannot listen on ${host}:${port} (${code}). Correct PATCHBAY_HOST and PATCHBAY_PORT.`,
      { cause, details },
    );
  }
  return cause;
}

/** Asked for at each agent's start; found once, and looked for again only after a failure. */
function rememberBinary(configured: string | undefined): () => Promise<{ command: string; version: string }> {
  let found: Promise<{ command: string; version: string }> | undefined;
  return () => {
    found ??= resolveClaude({ configured }).catch((error: unknown) => {
      found = undefined;
      throw error;
    });
    return found;
  };
}

function rememberFor<T>(ms: number, ask: () => Promise<T>): () => Promise<T> {
  let last: { readonly at: number; readonly answer: Promise<T> } | undefined;
  return () => {
    if (last === undefined || performance.now() - last.at > ms) last = { at: performance.now(), answer: ask() };
    return last.answer;
  };
}

async function readiness(store: Store, binary: () => Promise<unknown>): Promise<Readiness> {
  const check = async (work: Promise<unknown>, message: string): Promise<ReadinessCheck> => {
    try {
      await work;
      return { ok: true };
    } catch {
      return { ok: false, message };
    }
  };
  const now = Date.now();
  const touch = { sql: "INSERT OR REPLACE INTO meta (key, value) VALUES ('ready', ?)", params: [String(now)] };
  const checks = {
    store: await check(store.write([touch]), "The data directory cannot be written; see the server's log."),
    agent: await check(binary(), "The claude CLI was not found; run `patchbay doctor`."),
  };
  return { ok: Object.values(checks).every(({ ok }) => ok), checks };
}
