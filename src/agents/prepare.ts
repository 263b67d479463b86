import { claudeArguments } from "./arguments.ts";
import { agentEnvironment } from "./environment.ts";
import { sessionFolders, transcriptExists } from "./folders.ts";
import { writeOptionFiles } from "./options.ts";
import type { AgentSpec } from "./port.ts";
import type { StartRequest } from "./runner-port.ts";

/** What a runner knows of its own machine. */
export interface RunnerSettings {
  /** Sessions' homes are inside. */
  readonly dataDir: string;
  readonly workspaceRoot: string;
  /**
   * The CLI's program; asked for at each start, so that an upgrade takes effect with the next process. `asked` is the request's own, which
   * counts only on the server's machine. @throws BrokerError agent_unavailable
   */
  readonly binary: (asked: string | undefined) => Promise<{ readonly command: string }>;
  /** Variables that this machine's operator gives to every agent, on top of the server's. */
  readonly env?: Readonly<Record<string, string>>;
}

/** How an agent is to be started, and whether it goes on with a stored conversation. */
export interface PreparedAgent {
  readonly spec: AgentSpec;
  readonly resumed: boolean;
}

/** Makes a session's folders and option files, and says how its agent is started. @throws BrokerError agent_unavailable, cwd_refused, agent_arg_refused */
export async function prepareAgent(request: StartRequest, settings: RunnerSettings): Promise<PreparedAgent> {
  const { options, cliSessionId } = request;
  const { command } = await settings.binary(request.command);
  const { dataDir, workspaceRoot } = settings;
  const { cwd, home, configDir } = await sessionFolders({ dataDir, workspaceRoot, ...request.place });
  // The CLI refuses --session-id for a transcript that exists, and --resume for one that does not (spec/claude-protocol 1.2).
  const resumed = await transcriptExists(configDir, cliSessionId);
  const kind = resumed ? "resume" : "new";
  const optionsFolder = await writeOptionFiles(options, home);
  const { fork, mirror, lineLimitBytes } = request;
  const args = claudeArguments(options, { kind, cliSessionId, optionsFolder, fork, mirror });
  const shared = { ...request.sharedEnv, ...settings.env };
  const env = {
    ...agentEnvironment({ home, configDir, shared, options }),
    ...(request.rerun && { CLAUDE_CODE_RESUME_INTERRUPTED_TURN: "1" }),
  };
  return { spec: { command, args, env, cwd, lineLimitBytes }, resumed };
}
