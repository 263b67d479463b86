import type { ControlRequest } from "../protocol/commands.ts";
import type { Action } from "../protocol/roles.ts";

type Request = ControlRequest["request"];
type Rule = Action | ((request: Request) => readonly Action[]);

/** Modes that ask as often as the one that a session starts in, or more often; every other one asks less. */
const NARROW_MODES = ["default", "plan"];

/** Fields of initialize that change how a conversation reads. */
const PLAIN_INITIALIZE = new Set([
  "subtype",
  "systemPrompt",
  "appendSystemPrompt",
  "systemPromptSnapshot",
  "planModeInstructions",
  "title",
  "jsonSchema",
  "excludeDynamicSections",
  "promptSuggestions",
  "agentProgressSummaries",
  "forwardSubagentText",
  "supportedDialogKinds",
  "perTaskStopAffordance",
]);

/** What the client serves itself: it answers and acts for the agent, so it takes who may do both. */
const SERVED_INITIALIZE = new Set(["hooks", "sdkMcpServers", "sdkMcpServerManifests"]);

const isEmpty = (value: unknown): boolean =>
  value === null || value === undefined || (typeof value === "object" && Object.keys(value).length === 0);

/** Whether a mode asks for no fewer permissions than a session's first one. */
export const isNarrowMode = (mode: unknown): boolean => NARROW_MODES.some((narrow) => narrow === mode);

/** All other fields bring agents, plugins, servers that are programs, or what we do not know. */
function initialize(request: Request): readonly Action[] {
  const given = Object.keys(request).filter((field) => !PLAIN_INITIALIZE.has(field) && !isEmpty(request[field]));
  if (given.length === 0) return ["drive"];
  return given.every((field) => SERVED_INITIALIZE.has(field)) ? ["answer", "drive"] : ["administer"];
}

/** Every control request of spec/claude-protocol 3.1, and what sending it needs (PROTOCOL.md 6.2). A subtype that is not here needs `administer`. */
export const CONTROL_ACTIONS = {
  // Steers a conversation, or says where it stands.
  initialize,
  interrupt: "drive",
  set_model: "drive",
  set_permission_mode: ({ mode }) => [isNarrowMode(mode) ? "drive" : "administer"],
  set_max_thinking_tokens: "drive",
  cancel_async_message: "drive",
  stop_task: "drive",
  background_tasks: "drive",
  get_task_output: "drive",
  side_question: "drive",
  rename_session: "drive",
  generate_session_title: "drive",
  set_color: "drive",
  end_session: "drive",
  // Back to what a file was before this conversation changed it: never to anything new.
  rewind_files: "drive",
  get_context_usage: "drive",
  get_session_cost: "drive",
  get_usage: "drive",
  get_binary_version: "drive",
  list_models: "drive",
  list_permission_rules: "drive",
  file_suggestions: "drive",
  mcp_status: "drive",
  // A server that an admin has configured and that was lost.
  mcp_reconnect: "drive",

  // Settings: rules, hooks, variables of the agent, and credentials among them.
  apply_flag_settings: "administer",
  update_settings: "administer",
  get_settings: "administer",
  get_hooks_listing: "administer",
  // Tools, without anybody being asked for permission.
  mcp_set_servers: "administer",
  mcp_toggle: "administer",
  mcp_call: "administer",
  mcp_read_resource: "administer",
  mcp_authenticate: "administer",
  mcp_clear_auth: "administer",
  mcp_oauth_callback_url: "administer",
  // Files and folders, past every rule and every approver.
  read_file: "administer",
  stage_file: "administer",
  seed_read_state: "administer",
  register_repo_root: "administer",
  add_directory: "administer",
  // Loads what lies in the folder, where the agent may have written it.
  reload_plugins: "administer",
  reload_skills: "administer",
  reload_output_styles: "administer",
  // The history that the broker's own log has to agree with.
  fork_conversation: "administer",
  rewind_conversation: "administer",
  export_conversation: "administer",
  set_has_subscribers: "administer",
  // Accounts, and what leaves the house.
  claude_authenticate: "administer",
  remote_control: "administer",
  ultrareview_launch: "administer",
  channel_enable: "administer",
  submit_feedback: "administer",
  message_rated: "administer",
} as const satisfies Readonly<Record<string, Rule>>;

const RULES: ReadonlyMap<string, Rule> = new Map(Object.entries(CONTROL_ACTIONS));

/** All that a principal needs for this control request; unknown subtypes are an admin's (default deny). */
export function controlActions(request: Request): readonly Action[] {
  const rule = RULES.get(request.subtype) ?? "administer";
  return typeof rule === "string" ? [rule] : rule(request);
}
