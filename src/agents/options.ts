import { mkdir, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import type { AgentOptions } from "../protocol/sessions.schema.ts";
import { ARGUMENT_LIMIT_BYTES } from "./client-arguments.ts";

/** An option that the CLI reads from a file: the flag that names it, the file's name in the options folder, and what is in it. */
export interface OptionFile {
  readonly flag: string;
  readonly name: string;
  readonly text: string;
}

const PROMPTS = [
  { flag: "--system-prompt", name: "system-prompt.txt", field: "system_prompt" },
  { flag: "--append-system-prompt", name: "append-system-prompt.txt", field: "append_system_prompt" },
] as const;

/**
 * What of a session's options cannot stand on a command line: MCP servers, whose credentials every user of the machine could read in the
 * list of processes, and prompts over what Linux takes in one argument.
 */
export function optionFiles(options: AgentOptions): readonly OptionFile[] {
  const servers = options.mcp_servers;
  const config = { flag: "--mcp-config", name: "mcp.json", text: JSON.stringify({ mcpServers: servers }) };
  const prompts = PROMPTS.flatMap(({ flag, name, field }) => {
    const text = options[field];
    return text === undefined || fits(flag, text) ? [] : [{ flag: `${flag}-file`, name, text }];
  });
  return [...prompts, ...(servers === undefined ? [] : [config])];
}

/** The prompts that do stand on the command line, as `--flag=value`. */
export function promptArguments(options: AgentOptions): string[] {
  return PROMPTS.flatMap(({ flag, field }) => {
    const text = options[field];
    return text !== undefined && fits(flag, text) ? [`${flag}=${text}`] : [];
  });
}

const fits = (flag: string, text: string): boolean => Buffer.byteLength(`${flag}=${text}`) <= ARGUMENT_LIMIT_BYTES;

/**
 * Writes a session's option files anew, for its user alone, into a folder of its home, and returns that folder. The agent may write there
 * too, so nothing that it left is kept or followed.
 */
export async function writeOptionFiles(options: AgentOptions, home: string): Promise<string> {
  const folder = join(home, ".patchbay");
  await rm(folder, { recursive: true, force: true });
  const files = optionFiles(options);
  if (files.length === 0) return folder;
  await mkdir(folder, { mode: 0o700 });
  for (const { name, text } of files) await writeFile(join(folder, name), text, { mode: 0o600, flag: "wx" });
  return folder;
}

/** Both versions of the CLI that are served obey either of these (measured); the first is the older name. */
const NO_ATTRIBUTION = JSON.stringify({ includeCoAuthoredBy: false, attribution: { commit: "", pr: "" } });

/** Settings of ours on top of those that the agent's own files hold. */
export function settingsArguments({ git }: AgentOptions): string[] {
  return git?.attribution === false ? [`--settings=${NO_ATTRIBUTION}`] : [];
}

/** What the options put into the agent's environment; the client's own `env` comes on top. */
export function optionEnvironment({ git, file_checkpointing }: AgentOptions): Readonly<Record<string, string>> {
  return {
    ...(git !== undefined && {
      GIT_AUTHOR_NAME: git.name,
      GIT_AUTHOR_EMAIL: git.email,
      GIT_COMMITTER_NAME: git.name,
      GIT_COMMITTER_EMAIL: git.email,
    }),
    ...(file_checkpointing === true && { CLAUDE_CODE_ENABLE_SDK_FILE_CHECKPOINTING: "true" }),
  };
}
