import { expect, test } from "vitest";
import { CONTROL_ACTIONS } from "../../src/auth/control-actions.ts";
import { actionsOf, may } from "../../src/auth/roles.ts";
import { parseCommand } from "../../src/protocol/commands.schema.ts";
import type { Command } from "../../src/protocol/commands.ts";
import type { RequestKind } from "../../src/protocol/events.ts";
import { ROLES, type Role } from "../../src/protocol/roles.ts";
import { verifies } from "../kit/verifies.ts";

/*
 * Typed by hand from contract.md 3 and PROTOCOL.md 6.2: who may send what. One letter a role, in the order
 * viewer, approver, driver, admin, operator, then driver and approver together (what a new key has); `-` is no.
 * Nothing here is computed from the implementation.
 */
const CONTROL: Readonly<Record<string, string>> = {
  //                              vadAO+
  initialize: "                   --dAO+",
  interrupt: "                    --dAO+",
  set_model: "                    --dAO+",
  set_permission_mode: "          ---AO-", // no mode, or an unknown one; modes are below
  set_max_thinking_tokens: "      --dAO+",
  cancel_async_message: "         --dAO+",
  stop_task: "                    --dAO+",
  background_tasks: "             --dAO+",
  get_task_output: "              --dAO+",
  side_question: "                --dAO+",
  rename_session: "               --dAO+",
  generate_session_title: "       --dAO+",
  set_color: "                    --dAO+",
  end_session: "                  --dAO+",
  rewind_files: "                 --dAO+",
  get_context_usage: "            --dAO+",
  get_session_cost: "             --dAO+",
  get_usage: "                    --dAO+",
  get_binary_version: "           --dAO+",
  list_models: "                  --dAO+",
  list_permission_rules: "        --dAO+",
  file_suggestions: "             --dAO+",
  mcp_status: "                   --dAO+",
  mcp_reconnect: "                --dAO+",
  apply_flag_settings: "          ---AO-",
  update_settings: "              ---AO-",
  get_settings: "                 ---AO-",
  get_hooks_listing: "            ---AO-",
  mcp_set_servers: "              ---AO-",
  mcp_toggle: "                   ---AO-",
  mcp_call: "                     ---AO-",
  mcp_read_resource: "            ---AO-",
  mcp_authenticate: "             ---AO-",
  mcp_clear_auth: "               ---AO-",
  mcp_oauth_callback_url: "       ---AO-",
  read_file: "                    ---AO-",
  stage_file: "                   ---AO-",
  seed_read_state: "              ---AO-",
  register_repo_root: "           ---AO-",
  add_directory: "                ---AO-",
  reload_plugins: "               ---AO-",
  reload_skills: "                ---AO-",
  reload_output_styles: "         ---AO-",
  fork_conversation: "            ---AO-",
  rewind_conversation: "          ---AO-",
  export_conversation: "          ---AO-",
  set_has_subscribers: "          ---AO-",
  claude_authenticate: "          ---AO-",
  remote_control: "               ---AO-",
  ultrareview_launch: "           ---AO-",
  channel_enable: "               ---AO-",
  submit_feedback: "              ---AO-",
  message_rated: "                ---AO-",
};

/** Subtypes in no table, now and later: default deny. */
const UNKNOWN: Readonly<Record<string, string>> = {
  claude_oauth_callback: "        ---AO-",
  claude_oauth_wait: "            ---AO-",
  set_permission_mode2: "         ---AO-",
  "interrupt ": "                 ---AO-",
  constructor: "                  ---AO-",
  a_subtype_of_next_year: "       ---AO-",
};

const MODES: Readonly<Record<string, string>> = {
  default: "                      --dAO+",
  plan: "                         --dAO+",
  acceptEdits: "                  ---AO-",
  dontAsk: "                      ---AO-",
  auto: "                         ---AO-",
  bypassPermissions: "            ---AO-",
  Plan: "                         ---AO-",
  nonsense: "                     ---AO-",
};

const INITIALIZE: readonly (readonly [Readonly<Record<string, unknown>>, string])[] = [
  [{ hooks: null, agents: {}, skills: [] }, "              --dAO+"],
  [{ systemPrompt: ["x"], appendSystemPrompt: "x" }, "     --dAO+"],
  [{ hooks: { PreToolUse: [{}] } }, "                      ---AO+"],
  [{ sdkMcpServers: ["calc"] }, "                          ---AO+"],
  [{ sdkMcpServers: ["calc"], systemPrompt: [""] }, "      ---AO+"],
  [{ mcpServers: { x: { command: "sh" } } }, "             ---AO-"],
  [{ hooks: { Stop: [{}] }, plugins: [{}] }, "             ---AO-"],
  [{ agents: { rev: { prompt: "x" } } }, "                 ---AO-"],
  [{ aFieldOfNextYear: true }, "                           ---AO-"],
];

/** Who may answer each kind of request. */
const ANSWERS: Readonly<Record<RequestKind, string>> = {
  permission: "                   -a-AO+",
  question: "                     -a-AO+",
  plan: "                         -a-AO+",
  elicitation: "                  -a-AO+",
  dialog: "                       -a-AO+",
  hook: "                         ---AO+",
  mcp: "                          ---AO+",
  other: "                        ---AO-",
};

/** The command types with no subtype. */
const REST: readonly (readonly [string, unknown, string])[] = [
  ["query", { text: "x" }, "                                                    --dAO+"],
  ["control_cancel_request", { type: "control_cancel_request", request_id: "r" }, "--dAO+"],
];

const SETS: readonly (readonly [string, readonly Role[]])[] = [
  ["v", ["viewer"]],
  ["a", ["approver"]],
  ["d", ["driver"]],
  ["A", ["admin"]],
  ["O", ["operator"]],
  ["+", ["driver", "approver"]],
];

const command = (event_type: string, payload: unknown): Command => parseCommand({ id: "1", event_type, payload });
const control = (subtype: string, fields: Readonly<Record<string, unknown>> = {}): Command =>
  command("control_request", { request_id: "r", request: { ...fields, subtype } });
const ANSWER_FORMS: readonly Command[] = [
  { subtype: "success", response: { behavior: "allow", updatedInput: {} } },
  { subtype: "success", response: { behavior: "deny", message: "no" } },
  { subtype: "error", error: "cannot" },
].map((response) => command("control_response", { response: { request_id: "r", ...response } }));

/** What the implementation says, in the same letters. */
function allowed(asked: Command, kind?: RequestKind): string {
  const needed = actionsOf(asked, kind);
  return SETS.map(([letter, roles]) => (needed.every((action) => may({ roles }, action)) ? letter : "-")).join("");
}

verifies("ROLES", "role by control subtype, as typed by hand", () => {
  for (const [subtype, expected] of Object.entries({ ...CONTROL, ...UNKNOWN })) {
    expect({ subtype, allowed: allowed(control(subtype)) }).toEqual({ subtype, allowed: expected.trim() });
  }
  for (const [mode, expected] of Object.entries(MODES)) {
    const asked = control("set_permission_mode", { mode });
    expect({ mode, allowed: allowed(asked) }).toEqual({ mode, allowed: expected.trim() });
  }
  for (const [fields, expected] of INITIALIZE) {
    const asked = control("initialize", fields);
    expect({ fields, allowed: allowed(asked) }).toEqual({ fields, allowed: expected.trim() });
  }
});

verifies("ROLES", "role by kind of request and form of answer, as typed by hand", () => {
  for (const [kind, expected] of Object.entries(ANSWERS) as [RequestKind, string][]) {
    for (const answer of ANSWER_FORMS) {
      expect({ kind, allowed: allowed(answer, kind) }).toEqual({ kind, allowed: expected.trim() });
    }
  }
  // Of a request that is not open: the session says what became of it, to whoever may answer at all.
  for (const answer of ANSWER_FORMS) expect(allowed(answer)).toBe("-a-AO+");
});

verifies("ROLES", "role by the other commands, as typed by hand", () => {
  for (const [type, payload, expected] of REST) expect(allowed(command(type, payload))).toBe(expected.trim());
});

verifies("ROLES", "a runner's key may send nothing and answer nothing", () => {
  const all = Object.keys({ ...CONTROL, ...UNKNOWN }).map((subtype) => control(subtype));
  const others = REST.map(([type, payload]) => command(type, payload));
  for (const asked of [...all, ...others, ...ANSWER_FORMS]) {
    expect(actionsOf(asked).some((action) => may({ roles: ["runner"] }, action))).toBe(false);
  }
});

test("nothing is untested: the tables here and the implementation's name the same subtypes, roles and commands", () => {
  expect(Object.keys(CONTROL).toSorted()).toEqual(Object.keys(CONTROL_ACTIONS).toSorted());
  expect(Object.keys(UNKNOWN).filter((subtype) => Object.hasOwn(CONTROL_ACTIONS, subtype))).toEqual([]);
  // A runner may send nothing, whatever it is.
  expect([...SETS.slice(0, 5).map(([, [role]]) => role), "runner"]).toEqual([...ROLES]);
});
