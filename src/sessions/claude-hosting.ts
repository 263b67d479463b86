import type { DialledRunners } from "../agents/runner/dialled-runners.ts";
import type { Runner, SessionPlace } from "../agents/runner-port.ts";
import { stringField } from "../protocol/json.ts";
import { BrokerError } from "../protocol/problems.ts";
import type { Store } from "../store/port.ts";
import type { Hosting, JoinedRun } from "./hosting.ts";
import { createPlacement, type Placed, workspaceRootOf } from "./placement.ts";
import type { SessionRow } from "./rows.ts";
import {
  canMirror,
  catchUpWrites,
  copyWrites,
  loadTranscript,
  messageUuids,
  mirrorWrites,
  restoreTranscript,
} from "./transcripts.ts";

export interface ClaudeHostingParts {
  /** The server's own; undefined: sessions live on runners that dial in only. */
  readonly runner: Runner | undefined;
  readonly dialled?: DialledRunners;
  readonly store: Store;
  /** Agents of the server's own runner go on when this server goes. */
  readonly agentsStay: boolean;
  /** The CLI's binary on this machine; asked for at each start, so that an upgrade takes effect with the next process. @throws BrokerError agent_unavailable */
  readonly binary: () => Promise<{ readonly command: string; readonly version?: string }>;
  /** Variables that every agent of the server's own runner gets (PATCHBAY_AGENT_ENV_*). */
  readonly sharedEnv: Readonly<Record<string, string>>;
  /** A tenant's secret: told to an agent at its start, and written down nowhere. @throws BrokerError not_found */
  readonly secretOf?: (tenant: string, name: string) => Promise<string>;
  readonly lineLimitBytes: number;
  readonly patience?: Partial<RunnerPatience>;
  readonly report?: (error: unknown) => void;
}

/** How long sessions wait for a runner that dials in, in milliseconds. */
export interface RunnerPatience {
  /** With `when_away: fail`: for one that is away, before the session gives it up. */
  readonly failAfterMs: number;
  /** With `when_away: fail`: for a first one. */
  readonly firstRunnerMs: number;
  /** After a start of the server: before a session is opened without it. */
  readonly joinMs: number;
}

const PATIENCE: RunnerPatience = { failAfterMs: 60_000, firstRunnerMs: 10_000, joinMs: 10_000 };

/** Sessions hosted by the claude CLI in stream-json mode (spec/claude-protocol 1). */
export function createClaudeHosting(parts: ClaudeHostingParts): Hosting {
  const { store, lineLimitBytes, dialled, runner: local } = parts;
  const patience = { ...PATIENCE, ...parts.patience };
  const report = parts.report ?? ((error: unknown) => process.emitWarning(String(error)));
  /** A runner that came back is rid of what nobody wants before it gets anything new. */
  const cleaning = new Map<Runner, Promise<void>>();
  const cleaned = async (runner: Runner): Promise<void> => cleaning.get(runner);
  const placement = createPlacement({ store, local, dialled, ...patience, cleaned, report });
  const places = new Map<string, NonNullable<Placed["dialled"]>>();

  const note = (row: Pick<SessionRow, "id">, placed: Placed | undefined): Placed | undefined => {
    if (placed?.dialled !== undefined) places.set(row.id, placed.dialled);
    return placed;
  };
  const placeOfRow = async (row: SessionRow): Promise<Placed | undefined> => note(row, await placement.of(row));
  const runnerOf = async (row: SessionRow): Promise<Runner> => {
    const placed = await placeOfRow(row);
    if (placed !== undefined) return placed.runner;
    throw new BrokerError("runner_unavailable", "The session has no runner yet. Try again.");
  };
  const versionOf = async ({ dialled: runner }: Placed): Promise<string | undefined> =>
    runner === undefined ? (await parts.binary()).version : stringField(runner.about(), "claude_version");

  return {
    agentStays: (spec) => !placement.isLocal(spec) || parts.agentsStay,
    isLocal: placement.isLocal,
    giveUpAfterMs: patience.failAfterMs,
    lineLimitBytes,
    placeOf(id) {
      const runner = places.get(id);
      return (
        runner && {
          name: runner.name,
          workspaceRoot: workspaceRootOf({ runner: runner.remote, isLocal: false, dialled: runner }),
        }
      );
    },
    async reach(row, waiting, signal) {
      const placed = await placement.reach(row, waiting, signal);
      note(row, placed);
      // A link that broke meanwhile has been followed by another cleaning.
      while (!signal.aborted && cleaning.has(placed.runner)) await orAborted(cleaning.get(placed.runner), signal);
    },
    async start(row, { run, cliSessionId, rerun }) {
      const placed = await placeOfRow(row);
      if (placed === undefined)
        throw new BrokerError("runner_unavailable", "The session has no runner yet. Try again.");
      const { runner, isLocal } = placed;
      const { fork } = row.spec;
      const options = await optionsOf(row, parts.secretOf);
      const place = placeOf(row);
      const source = await restoreTranscript(store, runner.files, place, { cliSessionId, fork });
      return runner.start({
        run,
        place,
        options,
        cliSessionId,
        ...(source && { fork: source }),
        // What this machine's operator gives to agents is for agents on this machine; another one's gives its own, and has its own CLI.
        sharedEnv: isLocal ? parts.sharedEnv : {},
        ...(isLocal && { command: (await parts.binary()).command }),
        rerun,
        mirror: canMirror(await versionOf(placed)),
        lineLimitBytes,
      });
    },
    async join(row, run, process, signal): Promise<JoinedRun | undefined> {
      const placed = await placeOfRow(row);
      if (placed === undefined) return undefined;
      const joined = async (): Promise<JoinedRun | undefined> => {
        const found = await placed.runner.join(run);
        return found && { run: found, isAway: false };
      };
      if (placed.dialled === undefined) return joined();
      const { remote } = placed.dialled;
      // One that was to start and of which nothing was heard may never have come to be: its session starts another one.
      const adopted = (): JoinedRun | undefined => process && { run: remote.adopt(run, process), isAway: true };
      if (!(await placement.back(placed.dialled, patience.joinMs, signal))) return adopted();
      return joined().catch(adopted);
    },
    async watchRunners(linked) {
      dialled?.onLinked(({ remote }) => {
        const cleaned = linked(remote).catch(report);
        cleaning.set(remote, cleaned);
        void cleaned.finally(() => cleaning.get(remote) === cleaned && cleaning.delete(remote));
      });
      if (local !== undefined) await linked(local);
    },
    async messagesTaken(row, cliSessionId) {
      try {
        const { files } = await runnerOf(row);
        const file = await files.readTranscript(placeOf(row), cliSessionId);
        // The last lines that a process wrote before it died may be in the file only.
        if (file !== undefined) await store.write(await catchUpWrites(store, row.id, cliSessionId, file));
        const transcript = file ?? (await loadTranscript(store, row.id, cliSessionId));
        return transcript === undefined ? new Set() : messageUuids(transcript);
      } catch {
        // Not to be had (a runner that is away, a folder that cannot be read): the session then counts each message as taken.
        return undefined;
      }
    },
    async readTranscript(row, cliSessionId) {
      try {
        return await (await runnerOf(row)).files.readTranscript(placeOf(row), cliSessionId);
      } catch {
        return undefined;
      }
    },
    mirrorWrites,
    async copyTranscript(row, cliSessionId) {
      const placed = await placeOfRow(row);
      if (placed === undefined || (await versionOf(placed).then(canMirror, () => true))) return [];
      // One that is away now is asked again after the next turn.
      const copy = await placed.runner.files.readTranscript(placeOf(row), cliSessionId).catch(report);
      return copy === undefined ? [] : copyWrites(row.id, cliSessionId, copy);
    },
    async removeFolders(session) {
      await placement.remove(session);
      places.delete(session.id);
    },
  };
}

/** Resolves when the work is done, or is not wanted any more. */
async function orAborted(work: Promise<void> | undefined, signal: AbortSignal): Promise<void> {
  const { promise, resolve } = Promise.withResolvers<void>();
  const abort = (): void => resolve();
  signal.addEventListener("abort", abort);
  await Promise.race([work, promise]);
  signal.removeEventListener("abort", abort);
}

const placeOf = ({ id, tenant, spec }: Pick<SessionRow, "id" | "tenant" | "spec">): SessionPlace => ({
  tenant,
  sessionId: id,
  ...(!spec.ownFolder && { cwd: spec.cwd }),
});

/** The session's options, with its secrets as variables. @throws BrokerError agent_unavailable for one that is not there any more */
async function optionsOf(
  { tenant, spec }: SessionRow,
  secretOf: ClaudeHostingParts["secretOf"],
): Promise<SessionRow["spec"]["agent"]> {
  const env: Record<string, string> = { ...spec.agent.env };
  for (const [variable, name] of Object.entries(spec.secrets ?? {})) {
    const value = await secretOf?.(tenant, name).catch(() => undefined);
    if (value === undefined) throw new BrokerError("agent_unavailable", `The secret ${name} is not there any more.`);
    env[variable] = value;
  }
  return spec.secrets === undefined ? spec.agent : { ...spec.agent, env };
}
