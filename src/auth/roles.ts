import type { Command } from "../protocol/commands.ts";
import { isJsonObject } from "../protocol/json.ts";
import { BrokerError } from "../protocol/problems.ts";
import { type Action, ROLES, type Role } from "../protocol/roles.ts";

/** contract 3, as a table. */
const GRANTS = {
  viewer: ["read"],
  approver: ["read", "answer"],
  driver: ["read", "drive"],
  admin: ["read", "answer", "drive", "administer"],
  operator: ["read", "answer", "drive", "administer"],
} as const satisfies Record<Role, readonly Action[]>;

/** Roles that a key or ticket of this version may be given; the finer ones come with the policy that makes them safe. */
const GRANTABLE: readonly Role[] = ["viewer", "operator"];

/** Control requests that steer a conversation without widening anybody's rights; all others are an admin's (default deny). */
const DRIVING = new Set([
  "interrupt",
  "set_model",
  "set_max_thinking_tokens",
  "get_context_usage",
  "get_session_cost",
  "get_usage",
  "list_models",
  "get_binary_version",
  "stop_task",
  "background_tasks",
  "get_task_output",
  "cancel_async_message",
  "rename_session",
  "generate_session_title",
  "side_question",
]);

export function may(principal: { readonly roles: readonly Role[] }, action: Action): boolean {
  return principal.roles.some((role) => GRANTS[role].some((granted) => granted === action));
}

/** An answer that also changes the rules for later ones (setMode, addRules) widens rights. */
function widensRights(response: Readonly<Record<string, unknown>> | undefined): boolean {
  const updates = response?.["updatedPermissions"];
  return Array.isArray(updates) ? updates.length > 0 : isJsonObject(updates);
}

export function actionOf(command: Command): Action {
  switch (command.event_type) {
    case "query":
    case "control_cancel_request":
      return "drive";
    case "control_request":
      return DRIVING.has(command.payload.request.subtype) ? "drive" : "administer";
    case "control_response": {
      const { response } = command.payload;
      return response.subtype === "success" && widensRights(response.response) ? "administer" : "answer";
    }
  }
}

const isRole = (name: string): name is Role => ROLES.some((role) => role === name);

/** Checks names of roles for a new key or ticket. @throws BrokerError bad_request, not_available */
export function grantableRoles(names: readonly string[]): readonly Role[] {
  const roles = names.map((name) => {
    if (isRole(name)) return name;
    throw new BrokerError("bad_request", `roles: ${JSON.stringify(name)} is none of ${ROLES.join(", ")}.`, {
      details: { field: "roles" },
    });
  });
  if (roles.length === 0) {
    throw new BrokerError("bad_request", "roles: name at least one.", { details: { field: "roles" } });
  }
  const later = roles.find((role) => !GRANTABLE.includes(role));
  if (later !== undefined) {
    throw new BrokerError("not_available", `roles: ${later} is not served by this version; use viewer or operator.`, {
      details: { field: "roles" },
    });
  }
  return [...new Set(roles)];
}

/** Whether everything that these roles allow is allowed to `maker` too. */
export function withinRoles(roles: readonly Role[], maker: readonly Role[]): boolean {
  if (roles.includes("operator") && !maker.includes("operator")) return false;
  return roles.every((role) => GRANTS[role].every((action) => may({ roles: maker }, action)));
}
