import type { Command } from "../protocol/commands.ts";
import type { RequestKind } from "../protocol/events.ts";
import { BrokerError } from "../protocol/problems.ts";
import { type Action, ROLES, type Role } from "../protocol/roles.ts";
import type { NewSession } from "../protocol/sessions.schema.ts";
import { controlActions, isNarrowMode } from "./control-actions.ts";

/** contract 3, as a table. */
const GRANTS = {
  viewer: ["read"],
  approver: ["read", "answer"],
  driver: ["read", "drive"],
  admin: ["read", "answer", "drive", "administer", "host"],
  operator: ["read", "answer", "drive", "administer", "host"],
  runner: ["host"],
} as const satisfies Record<Role, readonly Action[]>;

/** contract 3: what a new key has unless told otherwise. */
export const DEFAULT_ROLES: readonly Role[] = ["driver", "approver"];

/** What an answer needs. Hooks and in-page tools act for the agent as well; and what a kind that we do not know lets happen, nobody can say. */
const ANSWERS = {
  permission: ["answer"],
  question: ["answer"],
  plan: ["answer"],
  elicitation: ["answer"],
  dialog: ["answer"],
  hook: ["answer", "drive"],
  mcp: ["answer", "drive"],
  other: ["administer"],
} as const satisfies Record<RequestKind, readonly Action[]>;

/** Options of a new session's agent that every driver may choose; a mode depends on its value, and all others are an admin's. */
const PLAIN_OPTIONS = new Set([
  "model",
  "system_prompt",
  "append_system_prompt",
  "include_partial_messages",
  "git",
  "file_checkpointing",
]);

export function may(principal: { readonly roles: readonly Role[] }, action: Action): boolean {
  return principal.roles.some((role) => GRANTS[role].some((granted) => granted === action));
}

/**
 * What a command needs, all of it; for an answer it depends on the kind of its request, where that is open. Rules and modes that an answer adds are
 * held against the roles and the policy by the session, which knows both.
 */
export function actionsOf(command: Command, kind?: RequestKind): readonly Action[] {
  switch (command.event_type) {
    case "query":
    case "control_cancel_request":
      return ["drive"];
    case "control_request":
      return controlActions(command.payload.request);
    case "control_response":
      return kind === undefined ? ["answer"] : ANSWERS[kind];
  }
}

/** What creating this session needs: arguments, variables, servers and modes that ask less widen rights (contract 3). */
export function actionOfCreation({ agent = {} }: NewSession): Action {
  const widening = Object.entries(agent).some(([option, value]) => {
    if (value === undefined || PLAIN_OPTIONS.has(option)) return false;
    return option !== "permission_mode" || !isNarrowMode(value);
  });
  return widening ? "administer" : "drive";
}

const isRole = (name: string): name is Role => ROLES.some((role) => role === name);

/** Checks names of roles for a new key or ticket. @throws BrokerError bad_request */
export function rolesOf(names: readonly string[]): readonly Role[] {
  const roles = names.map((name) => {
    if (isRole(name)) return name;
    throw new BrokerError("bad_request", `roles: ${JSON.stringify(name)} is none of ${ROLES.join(", ")}.`, {
      details: { field: "roles" },
    });
  });
  if (roles.length === 0) {
    throw new BrokerError("bad_request", "roles: name at least one.", { details: { field: "roles" } });
  }
  return [...new Set(roles)];
}

/** Whether everything that these roles allow is allowed to `maker` too. */
export function withinRoles(roles: readonly Role[], maker: readonly Role[]): boolean {
  if (roles.includes("operator") && !maker.includes("operator")) return false;
  return roles.every((role) => GRANTS[role].every((action) => may({ roles: maker }, action)));
}
