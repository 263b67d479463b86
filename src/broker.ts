import { realpathSync } from "node:fs";
import { join } from "node:path";
import { pino } from "pino";
import { answerLinks } from "./api/answer-link.ts";
import type { ApiOptions } from "./api/config.ts";
import { createApi } from "./api/server.ts";
import { auditWrite } from "./auth/audit.ts";
import { createAuth } from "./auth/auth.ts";
import { decide } from "./auth/policy/decide.ts";
import { createPolicies, type Policies } from "./auth/policy/policies.ts";
import { questionOf } from "./auth/policy/question.ts";
import { createSecrets } from "./auth/secrets.ts";
import type { RunloopOptions } from "./compat/runloop/port.ts";
import { createRunloop } from "./compat/runloop/runloop.ts";
import { createAxonSql } from "./compat/runloop/sql/axon-sql.ts";
import { listen } from "./listen.ts";
import { createLogs } from "./log/logs.ts";
import { openRunners } from "./open-runner.ts";
import { type BrokerOptions, type ResolvedOptions, resolveOptions } from "./options.ts";
import { BrokerError } from "./protocol/problems.ts";
import { rememberBinary, rememberReadiness } from "./readiness.ts";
import { createClaudeHosting, type RunnerPatience } from "./sessions/claude-hosting.ts";
import { createSessions, type DecidedSession, type SessionsOptions } from "./sessions/manager.ts";
import type { Decide } from "./sessions/port.ts";
import { createRetention, scheduleRetention } from "./sessions/retention.ts";
import { makeDirectories } from "./store/make-directories.ts";
import type { Store } from "./store/port.ts";
import { createSealer } from "./store/seal.ts";
import { sealingKeys } from "./store/sealing-keys.ts";
import { openStore } from "./store/sqlite.ts";
import { VERSION } from "./version.ts";
import type { WebhookOptions } from "./webhooks/options.ts";
import { createWebhooks } from "./webhooks/webhooks.ts";

const RETENTION_EVERY_MS = 10 * 60 * 1000;

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
  /**
   * Drains: sockets get the come-back code, logs are flushed, files let go. Agents of a runner that outlives the server go on, for the next
   * server to join, unless `stopAgents`; others are stopped. Says how many go on.
   */
  close(options?: { readonly stopAgents?: boolean }): Promise<{ readonly agentsLeft: number }>;
}

/** Settings that only code can give: for tests and embedding. */
export interface BrokerTuning {
  readonly sessions?: Partial<SessionsOptions>;
  readonly api?: Partial<ApiOptions>;
  readonly webhooks?: Partial<WebhookOptions>;
  readonly runloop?: Partial<RunloopOptions>;
  readonly runners?: Partial<RunnerPatience>;
  /** How often logs are looked through for events that need not be kept. Default 10 minutes. */
  readonly retentionEveryMs?: number;
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
    // What was opened before a start fails is let go of, newest first.
    const undo = new AsyncDisposableStack();
    return await compose(options, tuning, store, logger, undo).catch(async (error: unknown) => {
      await undo.disposeAsync();
      throw error;
    });
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
  undo: AsyncDisposableStack,
): Promise<Broker> {
  const { dataDir, workspaceRoot } = options;
  const auth = await createAuth({ store, ...(options.adminKey !== undefined && { adminKey: options.adminKey }) });
  const binary = rememberBinary(options.claudeBin);
  const runners = await openRunners(options, store, binary, {
    lost: (error) => logger.fatal({ err: error }, "runner.lost"),
    refused: (error) => logger.error({ err: error }, "runner.refused"),
    failed: (error) => logger.error({ err: error }, "runner.failed"),
  });
  const { local, dialled, agentsStay } = runners;
  undo.defer(() => runners.close());
  const sealer = createSealer(sealingKeys(dataDir, options.secretsKey));
  const secrets = await createSecrets({ store, sealer });
  const sql = createAxonSql({ folder: join(dataDir, "axon-sql") });
  const hosting = createClaudeHosting({
    secretOf: secrets.valueOf,
    runner: local,
    dialled,
    store,
    agentsStay,
    patience: tuning.runners ?? {},
    report: (error) => logger.error({ err: error }, "runner.failed"),
    binary,
    sharedEnv: options.agentEnv,
    lineLimitBytes: options.agentLineLimitBytes,
  });
  const webhooks = await createWebhooks({
    store,
    sealer,
    allowedHosts: options.webhookAllowedHosts,
    answerLink: answerLinks(auth, options.publicUrl),
    report: (webhook, error) => logger.error({ webhook, err: error }, "webhook.broken"),
    ...(tuning.webhooks && { options: tuning.webhooks }),
  });
  undo.defer(() => webhooks.close());
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
    inherited: policies.loadSession,
    purged(id, tenant) {
      policies.forgetSession(id);
      sql.remove(tenant, id).catch((error: unknown) => report(id, error));
    },
    audit: (session, note, nowMs) => auditWrite({ ...note, tenant: session.tenant, session_id: session.id }, nowMs),
    outbox: webhooks.outbox,
    options: {
      idleTimeoutMs: options.idleTimeoutS * 1000,
      stallMs: options.stallS * 1000,
      liveAgents: options.liveAgents,
      liveAgentsPerTenant: options.liveAgentsPerTenant,
      startingAgents: options.startingAgents,
      ...tuning.sessions,
    },
  });
  undo.defer(() => sessions.close());
  const settings = { maxAgeMs: options.retentionDays * DAY_MS, maxBytesPerTenant: options.retentionBytesPerTenant };
  const retention = scheduleRetention(
    createRetention({ store, logs, settings, now: Date.now }),
    tuning.retentionEveryMs ?? RETENTION_EVERY_MS,
    (error) => logger.error({ err: error }, "retention.failed"),
  );
  undo.defer(() => retention.stop());
  const tls =
    options.tlsCert === undefined || options.tlsKey === undefined
      ? undefined
      : { cert: options.tlsCert, key: options.tlsKey };
  const config: ApiOptions = {
    version: VERSION,
    ready: rememberReadiness(store, local && binary),
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
  const runloop = await createRunloop({
    auth,
    sessions,
    sql,
    secrets,
    database: store,
    report: (error) => logger.error({ err: error }, "devbox.failed"),
    ...(tuning.runloop && { options: tuning.runloop }),
  });
  undo.defer(() => runloop.close());
  const dialects = [runloop];
  const app = await createApi({ auth, sessions, policies, webhooks, runners: dialled, config, logger, dialects });
  const close: Broker["close"] = async (how = {}) => {
    await app.close();
    runloop.close();
    await retention.stop();
    await sessions.close(how);
    const agentsLeft = agentsStay && how.stopAgents !== true ? (local?.runs().length ?? 0) : 0;
    await runners.close();
    await webhooks.close();
    await store.close();
    return { agentsLeft };
  };
  const url = await listen(app, options).catch(async (error: unknown) => {
    await app.close();
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

const DAY_MS = 24 * 60 * 60 * 1000;

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
function decideFor(policies: Policies, root: string, { id, tenant, cwd, remoteRoot }: DecidedSession): Decide {
  return (question) => {
    const folder = join(remoteRoot() ?? root, tenant, cwd);
    return decide(
      { tenant: policies.forTenant(tenant), session: policies.forSession(id) },
      questionOf(question, folder),
    );
  };
}
