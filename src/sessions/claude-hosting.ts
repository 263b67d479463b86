import type { Runner, SessionPlace } from "../agents/runner-port.ts";
import type { Store } from "../store/port.ts";
import type { Hosting } from "./hosting.ts";
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
  readonly runner: Runner;
  readonly store: Store;
  /** Agents go on when this server goes. */
  readonly agentsStay: boolean;
  /** The CLI's binary; asked for at each start, so that an upgrade takes effect with the next process. @throws BrokerError agent_unavailable */
  readonly binary: () => Promise<{ readonly command: string; readonly version?: string }>;
  /** Variables that every agent gets (PATCHBAY_AGENT_ENV_*). */
  readonly sharedEnv: Readonly<Record<string, string>>;
  readonly lineLimitBytes: number;
}

/** Sessions hosted by the claude CLI in stream-json mode (spec/claude-protocol 1). */
export function createClaudeHosting(parts: ClaudeHostingParts): Hosting {
  const { runner, store, lineLimitBytes } = parts;
  const mirrors = async (): Promise<boolean> => canMirror((await parts.binary()).version);

  return {
    agentsStay: parts.agentsStay,
    lineLimitBytes,
    async start(row, { run, cliSessionId, rerun }) {
      const { command } = await parts.binary();
      const { fork, agent: options } = row.spec;
      const place = placeOf(row);
      const source = await restoreTranscript(store, runner.files, place, { cliSessionId, fork });
      return runner.start({
        run,
        place,
        options,
        cliSessionId,
        ...(source && { fork: source }),
        sharedEnv: parts.sharedEnv,
        rerun,
        mirror: await mirrors(),
        command,
        lineLimitBytes,
      });
    },
    join: (run) => runner.join(run),
    runs: () => runner.runs(),
    async messagesTaken(row, cliSessionId) {
      try {
        const file = await runner.files.readTranscript(placeOf(row), cliSessionId);
        // The last lines that a process wrote before it died may be in the file only.
        if (file !== undefined) await store.write(await catchUpWrites(store, row.id, cliSessionId, file));
        const transcript = file ?? (await loadTranscript(store, row.id, cliSessionId));
        return transcript === undefined ? new Set() : messageUuids(transcript);
      } catch {
        // Not to be had (a runner that is away, a folder that cannot be read): the session then counts each message as taken.
        return undefined;
      }
    },
    readTranscript: (row, cliSessionId) =>
      runner.files.readTranscript(placeOf(row), cliSessionId).catch(() => undefined),
    mirrorWrites,
    async copyTranscript(row, cliSessionId) {
      if (await mirrors().catch(() => true)) return [];
      const copy = await runner.files.readTranscript(placeOf(row), cliSessionId);
      return copy === undefined ? [] : copyWrites(row.id, cliSessionId, copy);
    },
    removeFolders: ({ id, tenant }) => runner.files.remove({ tenant, sessionId: id }),
  };
}

const placeOf = ({ id, tenant, spec }: Pick<SessionRow, "id" | "tenant" | "spec">): SessionPlace => ({
  tenant,
  sessionId: id,
  ...(!spec.ownFolder && { cwd: spec.cwd }),
});
