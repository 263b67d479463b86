import { isJsonObject } from "../../../protocol/json.ts";
import { BrokerError } from "../../../protocol/problems.ts";
import type { DevboxMount, NewDevbox } from "../../../protocol/runloop.schema.ts";
import { parseNewSession } from "../../../protocol/sessions.schema.ts";
import type { Mount } from "../../../sessions/port.ts";

/** What a devbox's creator asks of its agent, as this server grants it. */
export interface Launch {
  readonly axonId: string;
  readonly agent: Mount["agent"];
  readonly cwd: string | undefined;
  /** What was left out, and why: told as agent.log. */
  readonly skipped: readonly string[];
}

/** The home of a Runloop devbox: here the session's own folder. */
const HOME = "/home/user";

const refused = (field: string, text: string): BrokerError =>
  new BrokerError("bad_request", `${field}: ${text}`, { details: { field } });

/** The one mount that brings an agent. @throws BrokerError bad_request, not_available */
function brokerMount({ mounts }: NewDevbox): DevboxMount & { readonly axon_id: string } {
  const [mount, second] = (mounts ?? []).filter(({ type }) => type === "broker_mount");
  if (mount === undefined) {
    throw new BrokerError("not_available", "mounts: this server makes devboxes with a broker_mount only. Add one.");
  }
  const { axon_id } = mount;
  if (second !== undefined) throw refused("mounts", "has more than one broker_mount. Make a devbox for each.");
  if (axon_id === undefined) throw refused("mounts", "the broker_mount needs an axon_id.");
  const protocol = mount.protocol ?? "claude_json";
  if (protocol !== "claude_json") {
    const text = `protocol: ${protocol} is not served by this version. Use claude_json.`;
    throw new BrokerError("not_available", text, { details: { field: "mounts.protocol" } });
  }
  const program = mount.agent_binary?.split("/").at(-1);
  if (program !== undefined && program !== "claude") {
    throw refused("mounts.agent_binary", "must be claude: the server starts its own. Leave it out.");
  }
  return { ...mount, axon_id };
}

/** A folder below the devbox's home is one below the tenant's; the home itself is the session's own folder. */
function folderOf(asked: string | null | undefined): string | undefined {
  const path = (asked ?? "").replace(/^~(?=\/|$)/, HOME).replace(/\/+$/, "");
  if (path === "" || path === "." || path === HOME) return undefined;
  if (path.startsWith(`${HOME}/`)) return path.slice(HOME.length + 1);
  if (!path.startsWith("/")) return path;
  throw new BrokerError("cwd_refused", `working_directory: ${path} is outside ${HOME}. Name a folder below it.`);
}

type Options = Record<string, unknown>;

/** Flags of the CLI that are options of a session here. */
const OPTION_FLAGS: Readonly<Record<string, string>> = {
  "--model": "model",
  "--permission-mode": "permission_mode",
  "--system-prompt": "system_prompt",
  "--append-system-prompt": "append_system_prompt",
};
/** What the server says to every agent anyway. */
const OURS = ["--verbose", "--print", "-p", "--replay-user-messages"];
const OURS_WITH_VALUE = ["--output-format", "--input-format", "--permission-prompt-tool"];
const UNASKED = ["--dangerously-skip-permissions", "--allow-dangerously-skip-permissions"];

function mcpServers(text: string): unknown {
  try {
    const config: unknown = JSON.parse(text);
    if (isJsonObject(config) && isJsonObject(config["mcpServers"])) return config["mcpServers"];
  } catch {
    // Said below: a path to a file comes to the same.
  }
  throw refused("launch_args", '--mcp-config must be JSON of the form {"mcpServers": {…}} here.');
}

/** launch_args as options of a session; what is left goes through the same allow-list as a session's own arguments. */
function readArguments(args: readonly string[], skipped: string[]): Options {
  const options: Options = { include_partial_messages: false };
  const rest: string[] = [];
  for (let index = 0; index < args.length; index++) {
    const [, flag = "", inline] = /^([^=]*)(?:=([\s\S]*))?$/.exec(args[index] ?? "") ?? [];
    const value = (): string => {
      if (inline !== undefined) return inline;
      index += 1;
      const next = args[index];
      if (next === undefined) throw refused("launch_args", `${flag} needs a value.`);
      return next;
    };
    const option = Object.hasOwn(OPTION_FLAGS, flag) ? OPTION_FLAGS[flag] : undefined;
    if (option !== undefined) options[option] = value();
    else if (flag === "--mcp-config") options["mcp_servers"] = mcpServers(value());
    else if (flag === "--include-partial-messages") options["include_partial_messages"] = true;
    else if (OURS_WITH_VALUE.includes(flag)) value();
    else if (UNASKED.includes(flag)) skipped.push(`${flag} was left out: here somebody is asked before each tool.`);
    else if (!OURS.includes(flag)) rest.push(args[index] ?? "");
  }
  return rest.length === 0 ? options : { ...options, args: rest };
}

/** Variables for the agent alone. PATH is the server's: its agent is not where a devbox of Runloop's has it. */
function variables(asked: Readonly<Record<string, string>>, skipped: string[]): Readonly<Record<string, string>> {
  const { PATH, ...rest } = asked;
  if (PATH !== undefined) skipped.push("PATH was left out: the server's own is used.");
  return rest;
}

function skippedParts(input: NewDevbox, skipped: string[]): void {
  const other = (input.mounts ?? []).filter(({ type }) => type !== "broker_mount").map(({ type }) => type);
  if (other.length > 0) skipped.push(`Mounts were left out: ${[...new Set(other)].join(", ")}.`);
  const commands = input.launch_parameters?.launch_commands?.length ?? 0;
  if (commands > 0) skipped.push(`launch_commands were left out: ${commands}. This server does not run them.`);
}

/**
 * What a new devbox asks for, held against this server's policy.
 * @throws BrokerError bad_request, not_available, cwd_refused
 */
export function readLaunch(input: NewDevbox, policy: { readonly launchCommands: "skip" | "refuse" }): Launch {
  const mount = brokerMount(input);
  const commands = input.launch_parameters?.launch_commands ?? [];
  if (commands.length > 0 && policy.launchCommands === "refuse") {
    const text = "launch_commands: this server runs no commands at launch. Leave them out.";
    throw new BrokerError("not_available", text, { details: { field: "launch_parameters.launch_commands" } });
  }
  const skipped: string[] = [];
  const env = variables(input.environment_variables ?? {}, skipped);
  const options = readArguments(mount.launch_args ?? [], skipped);
  skippedParts(input, skipped);
  const wanted = { ...options, ...(Object.keys(env).length > 0 && { env }) };
  const agent = parseNewSession({ agent: wanted }).agent ?? {};
  return { axonId: mount.axon_id, agent, cwd: folderOf(mount.working_directory), skipped };
}
