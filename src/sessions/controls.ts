import type { ControlRequest } from "../protocol/commands.ts";
import { isJsonObject, type JsonObject, stringField } from "../protocol/json.ts";
import { BrokerError } from "../protocol/problems.ts";

/** Subtypes whose answers carry private facts: account, credentials, file contents, server paths (contract 5). */
const PRIVATE_ANSWERS: ReadonlySet<string> = new Set([
  "initialize",
  "get_settings",
  "mcp_status",
  "read_file",
  "get_usage",
  "get_context_usage",
  "file_suggestions",
  "list_permission_rules",
  "get_hooks_listing",
  "get_task_output",
  "mcp_call",
  "mcp_read_resource",
  "mcp_authenticate",
  "claude_authenticate",
]);

export function answerIsPrivate(subtype: string): boolean {
  return PRIVATE_ANSWERS.has(subtype) || subtype.startsWith("claude_oauth");
}

/** Subtypes whose request itself carries settings, variables or credentials. */
const PRIVATE_REQUESTS: ReadonlySet<string> = new Set([
  "mcp_set_servers",
  "update_settings",
  "apply_flag_settings",
  "mcp_call",
  "seed_read_state",
]);

export function requestIsPrivate(subtype: string): boolean {
  return PRIVATE_REQUESTS.has(subtype) || subtype.startsWith("claude_") || subtype.startsWith("mcp_oauth");
}

/** Requests of the CLI that no client of this version can serve: the broker answers at once, so that nothing stalls for 60 s. */
const UNSERVED: Readonly<Record<string, string>> = {
  hook_callback: "No client of this session serves hooks.",
  mcp_message: "No client of this session serves this MCP server.",
  oauth_token_refresh: "This server hands out no credentials.",
  host_auth_token_refresh: "This server hands out no credentials.",
  remote_control_work_secret: "This server hands out no credentials.",
};

/** The error for a request that nobody can serve, or undefined when a person or client may answer it. */
export function unservedReason(subtype: string): string | undefined {
  return Object.hasOwn(UNSERVED, subtype) ? UNSERVED[subtype] : undefined;
}

/** Subtypes that call a model, a server or a person before they can be answered. */
const SLOW = new Set([
  "side_question",
  "generate_session_title",
  "mcp_call",
  "mcp_read_resource",
  "mcp_authenticate",
  "mcp_reconnect",
]);

export function isSlowControl(subtype: string): boolean {
  return SLOW.has(subtype) || subtype.startsWith("claude_");
}

const PERMISSION_MODES = ["default", "acceptEdits", "plan", "dontAsk", "auto"];

const refuse = (code: "bad_request" | "not_available", field: string, text: string): never => {
  throw new BrokerError(code, `payload.request.${field}: ${text}`, { details: { field: `payload.request.${field}` } });
};

/** What initialize may not carry here: callbacks and servers that this version cannot route to their owner, and prompts that belong to creation. */
function checkInitialize(request: ControlRequest["request"]): void {
  const extra = Object.keys(request).find((key) => {
    const value = request[key];
    const empty = value === null || value === undefined || (isJsonObject(value) && Object.keys(value).length === 0);
    return key !== "subtype" && !empty && !(Array.isArray(value) && value.length === 0);
  });
  if (extra !== undefined)
    refuse("not_available", extra, "is not served by this version; initialize belongs to the session. Leave it out.");
}

/** Refuses what the CLI would take and should not. @throws BrokerError bad_request, not_available */
export function checkControl(request: ControlRequest["request"]): void {
  switch (request.subtype) {
    case "initialize":
      return checkInitialize(request);
    case "mcp_set_servers":
      return refuse("not_available", "subtype", "mcp_set_servers is not served by this version.");
    case "set_permission_mode":
      // The older CLI accepts any word (spec/claude-protocol 6); bypass is not for clients to switch on.
      if (!PERMISSION_MODES.includes(stringField(request, "mode") ?? "")) {
        refuse("bad_request", "mode", `must be one of ${PERMISSION_MODES.join(", ")}.`);
      }
      return;
    case "set_model":
      if (request.model !== undefined && request.model !== null && typeof request.model !== "string") {
        refuse("bad_request", "model", "must be a string or null.");
      }
      return;
    default:
      return;
  }
}

export const success = (requestId: string, response: JsonObject): JsonObject & { type: string } => ({
  type: "control_response",
  response: { subtype: "success", request_id: requestId, response },
});

export const failure = (requestId: string, error: string): JsonObject & { type: string } => ({
  type: "control_response",
  response: { subtype: "error", request_id: requestId, error },
});
