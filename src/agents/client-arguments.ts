import { isJsonObject } from "../protocol/json.ts";
import { BrokerError } from "../protocol/problems.ts";

/** Linux takes 128 KiB in one argument, with its closing NUL. */
export const ARGUMENT_LIMIT_BYTES = 128 * 1024 - 1;
/** All client arguments together; a Linux process has about 2 MiB for arguments and environment. */
const ARGUMENTS_LIMIT_BYTES = 512 * 1024;

/** What a flag of the allow-list takes: nothing, or a value that must pass. */
type Takes = "nothing" | ((value: string) => boolean);

const oneOf =
  (...values: string[]) =>
  (value: string) =>
    values.includes(value);
const matches = (pattern: RegExp) => (value: string) => pattern.test(value);

/** Flags of harmless effect: they limit, or choose between things that the session may have anyway. */
const ALLOWED = new Map<string, Takes>([
  ["--max-turns", matches(/^[1-9]\d{0,8}$/)],
  ["--max-budget-usd", matches(/^\d{1,9}(\.\d{1,9})?$/)],
  ["--max-thinking-tokens", matches(/^\d{1,9}$/)],
  ["--effort", matches(/^[a-z]{1,20}$/)],
  ["--thinking", oneOf("adaptive", "enabled", "disabled")],
  ["--thinking-display", matches(/^[a-z]{1,20}$/)],
  ["--fallback-model", matches(/^[A-Za-z0-9][\w.,:@/[\]-]{0,499}$/)],
  ["--betas", matches(/^[A-Za-z0-9][\w.,-]{0,499}$/)],
  ["--json-schema", isJsonText],
  ["--tools", matches(/^([A-Za-z]\w*(,[A-Za-z]\w*)*)?$/)],
  ["--disallowedTools", matches(/^[^-\s]/)],
  ["--disallowed-tools", matches(/^[^-\s]/)],
  ["--disable-slash-commands", "nothing"],
  ["--exclude-dynamic-system-prompt-sections", "nothing"],
  ["--forward-subagent-text", "nothing"],
  ["--include-hook-events", "nothing"],
]);

/** Flags that the broker sets itself, and where a client says the same. */
const OURS = new Map<string, string>([
  ["--model", "agent.model"],
  ["--permission-mode", "agent.permission_mode"],
  ["--system-prompt", "agent.system_prompt"],
  ["--append-system-prompt", "agent.append_system_prompt"],
  ["--system-prompt-file", "agent.system_prompt"],
  ["--append-system-prompt-file", "agent.append_system_prompt"],
  ["--mcp-config", "agent.mcp_servers"],
  ["--include-partial-messages", "agent.include_partial_messages"],
  ["--output-format", ""],
  ["--input-format", ""],
  ["--verbose", ""],
  ["--permission-prompt-tool", ""],
  ["--replay-user-messages", ""],
  ["--session-id", ""],
  ["--resume", ""],
  ["-r", ""],
  ["--print", ""],
  ["-p", ""],
]);

/**
 * A client's own arguments, each checked against the allow-list, in `--flag=value` form.
 * @throws BrokerError agent_arg_refused, with `details.field` = `agent.args[i]` and `details.flag`
 */
export function checkClientArguments(tokens: readonly string[]): string[] {
  const checked: string[] = [];
  let totalBytes = 0;
  for (let index = 0; index < tokens.length; index++) {
    const token = tokens[index] ?? "";
    const { flag, inline } = splitToken(token);
    const takes = ALLOWED.get(flag);
    if (takes === undefined) throw refused(index, flag, whyNot(flag));
    let argument = flag;
    if (takes === "nothing") {
      if (inline !== undefined) throw refused(index, flag, "takes no value");
    } else {
      const value = inline ?? nextValue(tokens, index, flag);
      if (inline === undefined) index += 1;
      if (value.includes("\0") || !takes(value)) throw refused(index, flag, "has a value that is not valid for it");
      argument = `${flag}=${value}`;
    }
    const bytes = Buffer.byteLength(argument);
    totalBytes += bytes;
    if (bytes > ARGUMENT_LIMIT_BYTES) throw refused(index, flag, `is over ${ARGUMENT_LIMIT_BYTES} bytes`);
    if (totalBytes > ARGUMENTS_LIMIT_BYTES) throw refused(index, flag, "makes the arguments too large together");
    checked.push(argument);
  }
  return checked;
}

function splitToken(token: string): { flag: string; inline: string | undefined } {
  const equals = token.startsWith("--") ? token.indexOf("=") : -1;
  if (equals === -1) return { flag: token, inline: undefined };
  return { flag: token.slice(0, equals), inline: token.slice(equals + 1) };
}

/** The value in the next token. One that begins with a dash must be joined to its flag: apart it would be a flag itself. */
function nextValue(tokens: readonly string[], index: number, flag: string): string {
  const value = tokens[index + 1];
  if (value === undefined || value.startsWith("-")) throw refused(index, flag, `needs a value, as in ${flag}=value`);
  return value;
}

function whyNot(flag: string): string {
  const instead = OURS.get(flag);
  if (instead !== undefined) return instead === "" ? "is set by the server" : `is set by the server from ${instead}`;
  return flag.startsWith("-") ? "is not on the allow-list of this version" : "is not a flag";
}

function refused(index: number, flag: string, why: string): BrokerError {
  // A token may be a whole document; its beginning is enough to find it.
  const shown = flag.slice(0, 80);
  const field = `agent.args[${index}]`;
  return new BrokerError("agent_arg_refused", `${field}: ${shown} ${why}. Remove or correct it.`, {
    details: { field, flag: shown },
  });
}

function isJsonText(value: string): boolean {
  try {
    return isJsonObject(JSON.parse(value));
  } catch {
    return false;
  }
}
