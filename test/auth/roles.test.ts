import fc from "fast-check";
import { expect, test } from "vitest";
import { actionOf, may, withinRoles } from "../../src/auth/roles.ts";
import { parseCommand } from "../../src/protocol/commands.schema.ts";
import type { Command } from "../../src/protocol/commands.ts";
import { type Action, ROLES, type Role } from "../../src/protocol/roles.ts";

const ACTIONS: readonly Action[] = ["read", "answer", "drive", "administer"];

test("contract 3, row by row", () => {
  const table = Object.fromEntries(
    ROLES.map((role) => [role, ACTIONS.filter((action) => may({ roles: [role] }, action))]),
  );
  expect(table).toEqual({
    viewer: ["read"],
    approver: ["read", "answer"],
    driver: ["read", "drive"],
    admin: ACTIONS,
    operator: ACTIONS,
  });
  expect(may({ roles: [] }, "read")).toBe(false);
});

const command = (event_type: string, payload: unknown): Command => parseCommand({ id: "1", event_type, payload });
const control = (subtype: string): Command => command("control_request", { request_id: "r", request: { subtype } });
const answer = (response: unknown): Command =>
  command("control_response", { response: { subtype: "success", request_id: "r", response } });

test("a control request that nobody listed is an admin's", () => {
  expect(actionOf(command("query", { text: "x" }))).toBe("drive");
  expect(actionOf(control("interrupt"))).toBe("drive");
  expect(actionOf(control("set_model"))).toBe("drive");
  for (const subtype of ["set_permission_mode", "mcp_set_servers", "claude_authenticate", "constructor", "anything"]) {
    expect(actionOf(control(subtype))).toBe("administer");
  }
});

test("an answer that changes the rules for later ones is an admin's", () => {
  expect(actionOf(answer({ behavior: "allow", updatedInput: {} }))).toBe("answer");
  expect(actionOf(answer({ behavior: "allow", updatedPermissions: [] }))).toBe("answer");
  expect(actionOf(answer({ behavior: "allow", updatedPermissions: [{ type: "setMode" }] }))).toBe("administer");
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
