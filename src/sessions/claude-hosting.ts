import { claudeArguments } from "../agents/arguments.ts";
import { agentEnvironment } from "../agents/environment.ts";
import { sessionFolders, transcriptExists } from "../agents/folders.ts";
import { writeOptionFiles } from "../agents/options.ts";
import type { Launcher } from "../agents/port.ts";
import { identity } from "../agents/sweep.ts";
import type { Hosting } from "./hosting.ts";

export interface ClaudeHostingParts {
  readonly launcher: Launcher;
  /** The CLI's binary; asked for at each start, so that an upgrade takes effect with the next process. @throws BrokerError agent_unavailable */
  readonly binary: () => Promise<{ readonly command: string }>;
  readonly dataDir: string;
  readonly workspaceRoot: string;
  /** Variables that every agent gets (PATCHBAY_AGENT_ENV_*). */
  readonly sharedEnv: Readonly<Record<string, string>>;
  readonly lineLimitBytes: number;
}

/** Sessions hosted by the claude CLI in stream-json mode (spec/claude-protocol 1). */
export function createClaudeHosting(parts: ClaudeHostingParts): Hosting {
  const { launcher, lineLimitBytes } = parts;
  return {
    launcher,
    lineLimitBytes,
    async start(row, cliSessionId, handlers) {
      const { command } = await parts.binary();
      const { cwd, home, configDir } = await sessionFolders({
        workspaceRoot: parts.workspaceRoot,
        dataDir: parts.dataDir,
        tenant: row.tenant,
        sessionId: row.id,
        ...(!row.spec.ownFolder && { cwd: row.spec.cwd }),
      });
      // The CLI refuses --session-id for a transcript that exists, and --resume for one that does not (spec/claude-protocol 1.2).
      const resumed = await transcriptExists(configDir, cliSessionId);
      const options = row.spec.agent;
      const optionsFolder = await writeOptionFiles(options, home);
      const args = claudeArguments(options, { kind: resumed ? "resume" : "new", cliSessionId, optionsFolder });
      const env = agentEnvironment({ home, configDir, shared: parts.sharedEnv, options });
      const agent = launcher.start({ command, args, env, cwd, lineLimitBytes }, handlers);
      return { agent, resumed, process: agent.pid === undefined ? undefined : identity(agent.pid) };
    },
  };
}
