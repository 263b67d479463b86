import { join } from "node:path";
import { BrokerError } from "../protocol/problems.ts";
import type { AgentOptions } from "../protocol/sessions.schema.ts";
import { checkClientArguments } from "./client-arguments.ts";
import { optionFiles, promptArguments, settingsArguments } from "./options.ts";
import type { ForkSource } from "./runner-port.ts";

/** Whether the CLI begins a conversation under an id of our choice, or goes on with one that has a transcript. */
export interface AgentStart {
  readonly kind: "new" | "resume";
  /** A UUID. */
  readonly cliSessionId: string;
  /** A new conversation begins as a copy of this one, whose transcript exists; the original stays as it is. */
  readonly fork?: ForkSource | undefined;
  /** The CLI also prints what it writes into its transcript. */
  readonly mirror?: boolean;
  /** Where `writeOptionFiles` puts what is too long or too secret for a command line. */
  readonly optionsFolder: string;
}

/** Without these there is no stream-json dialogue, and no permission prompt reaches us (spec/claude-protocol 1.1, 5.7). */
const ALWAYS = [
  "--output-format=stream-json",
  "--input-format=stream-json",
  "--verbose",
  "--permission-prompt-tool=stdio",
  "--replay-user-messages",
];

/**
 * The CLI's whole command line. Values always travel as `--flag=value`, so that none can become a flag of its own.
 * @throws BrokerError agent_arg_refused, with `details.field`
 */
export function claudeArguments(options: AgentOptions, start: AgentStart): string[] {
  const mode = options.permission_mode ?? "default";
  if (mode === "bypassPermissions") {
    throw new BrokerError(
      "agent_arg_refused",
      "agent.permission_mode: bypassPermissions is not served by this version. Choose another mode.",
      { details: { field: "agent.permission_mode" } },
    );
  }
  refuseNul(options.system_prompt, "agent.system_prompt");
  refuseNul(options.append_system_prompt, "agent.append_system_prompt");
  return [
    ...ALWAYS,
    ...((options.include_partial_messages ?? true) ? ["--include-partial-messages"] : []),
    ...conversationArguments(start),
    ...(start.mirror === true ? ["--session-mirror"] : []),
    // Said even when it is the default: else a settings file in the workspace, which an agent can write, would choose.
    `--permission-mode=${mode}`,
    ...(options.model === undefined ? [] : [`--model=${options.model}`]),
    ...promptArguments(options),
    ...settingsArguments(options),
    ...optionFiles(options).map(({ flag, name }) => `${flag}=${join(start.optionsFolder, name)}`),
    // Only the servers that the host names: a session could else write a .mcp.json that runs a program at its next start, unasked.
    "--strict-mcp-config",
    ...checkClientArguments(options.args ?? []),
  ];
}

/** The CLI refuses --session-id beside --resume unless it forks (spec/claude-protocol 1.2). */
function conversationArguments({ kind, cliSessionId, fork }: AgentStart): string[] {
  if (kind === "resume") return [`--resume=${cliSessionId}`];
  if (fork === undefined) return [`--session-id=${cliSessionId}`];
  return [
    `--resume=${fork.cliSessionId}`,
    "--fork-session",
    `--session-id=${cliSessionId}`,
    ...(fork.at === undefined ? [] : [`--resume-session-at=${fork.at}`]),
  ];
}

function refuseNul(value: string | undefined, field: string): void {
  if (value?.includes("\0") !== true) return;
  throw new BrokerError("agent_arg_refused", `${field}: holds a NUL character. Remove it.`, { details: { field } });
}
