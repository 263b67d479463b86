import fc from "fast-check";
import { expect, test } from "vitest";
import { actionOfCreation, actionsOf, may, withinRoles } from "../../src/auth/roles.ts";
import { parseCommand } from "../../src/protocol/commands.schema.ts";
import type { Command } from "../../src/protocol/commands.ts";
import { type Action, ROLES, type Role } from "../../src/protocol/roles.ts";
import type { AgentOptions } from "../../src/protocol/sessions.schema.ts";
import { verifies } from "../kit/verifies.ts";

const ACTIONS: readonly Action[] = ["read", "answer", "drive", "administer", "host"];

verifies("ROLES", "contract 3, row by row", () => {
  const table = Object.fromEntries(
    ROLES.map((role) => [role, ACTIONS.filter((action) => may({ roles: [role] }, action))]),
  );
  expect(table).toEqual({
    viewer: ["read"],
    approver: ["read", "answer"],
    driver: ["read", "drive"],
    admin: ACTIONS,
    operator: ACTIONS,
    runner: ["host"],
  });
  expect(may({ roles: [] }, "read")).toBe(false);
});

const command = (event_type: string, payload: unknown): Command => parseCommand({ id: "1", event_type, payload });
const control = (subtype: string): Command => command("control_request", { request_id: "r", request: { subtype } });

test("queries and withdrawals are a driver's; a control request that nobody listed is an admin's", () => {
  expect(actionsOf(command("query", { text: "x" }))).toEqual(["drive"]);
  expect(actionsOf(command("control_cancel_request", { type: "control_cancel_request", request_id: "r" }))).toEqual([
    "drive",
  ]);
  for (const subtype of ["constructor", "toString", "__proto__", "claude_oauth_callback", "anything", "INTERRUPT"]) {
    expect({ subtype, actions: actionsOf(control(subtype)) }).toEqual({ subtype, actions: ["administer"] });
  }
});

test("options of a new session that widen rights, known to us or not, are an admin's", () => {
  const of = (agent: AgentOptions): Action => actionOfCreation({ agent });
  expect(actionOfCreation({})).toBe("drive");
  expect(of({ model: "m", system_prompt: "s", append_system_prompt: "a", include_partial_messages: false })).toBe(
    "drive",
  );
  for (const mode of ["default", "plan"] as const) expect(of({ permission_mode: mode })).toBe("drive");
  for (const mode of ["acceptEdits", "bypassPermissions", "dontAsk", "auto"] as const) {
    expect(of({ permission_mode: mode })).toBe("administer");
  }
  expect(of({ args: [] })).toBe("administer");
  expect(of({ env: {} })).toBe("administer");
  const invented: AgentOptions & Record<string, unknown> = { model: "m", mcp_servers: {} };
  expect(of(invented)).toBe("administer");
});

test("what is within a maker's roles allows nothing that the maker may not do", () => {
  const roles = fc.uniqueArray(fc.constantFrom<Role>(...ROLES));
  fc.assert(
    fc.property(roles, roles, (wanted, maker) => {
      if (!withinRoles(wanted, maker)) return;
      for (const action of ACTIONS)
        expect(may({ roles: wanted }, action) && !may({ roles: maker }, action)).toBe(false);
      expect(wanted.includes("operator") && !maker.includes("operator")).toBe(false);
    }),
  );
});
