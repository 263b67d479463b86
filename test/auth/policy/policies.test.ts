import { expect, test } from "vitest";
import { SERVER_ACTOR } from "../../../src/auth/audit.ts";
import { createPolicies } from "../../../src/auth/policy/policies.ts";
import { parsePolicyCheck, parseSessionPolicy, parseTenantPolicy } from "../../../src/protocol/policy.schema.ts";
import { BrokerError } from "../../../src/protocol/problems.ts";
import { openMemoryStore } from "../../../src/store/memory.ts";
import type { Store } from "../../../src/store/port.ts";
import { verifies } from "../../kit/verifies.ts";

const NOTHING = { rules: [], default: "ask" } as const;
const DENY_BASH = { rules: [{ id: "no-bash", effect: "deny", tools: ["Bash"] }], default: "ask" } as const;

async function storeWithTenant(): Promise<Store> {
  const store = openMemoryStore();
  await store.write([
    { sql: "INSERT INTO tenants (id, created_at_ms) VALUES ('acme', 0)", params: [] },
    {
      sql: "INSERT INTO sessions (id, tenant, state, created_at_ms, updated_at_ms) VALUES ('s1', 'acme', 'idle', 0, 0)",
      params: [],
    },
  ]);
  return store;
}

const problem = (work: Promise<unknown>): Promise<unknown> =>
  work.then(
    () => "nothing",
    (error: unknown) => (error instanceof BrokerError ? error.code : error),
  );

test("a document is in force at once, there after a restart, and on record with who stored it", async () => {
  const store = await storeWithTenant();
  const policies = await createPolicies(store, () => 5);
  expect(policies.forTenant("acme")).toBeUndefined();
  expect(await policies.setTenant("acme", DENY_BASH, { id: "key-a", address: "::1" })).toEqual(DENY_BASH);
  await policies.setSession("s1", { default: "deny" }, SERVER_ACTOR);
  const again = await createPolicies(store);
  for (const one of [policies, again]) {
    expect(one.forTenant("acme")).toEqual(DENY_BASH);
    expect(one.forSession("s1")).toEqual({ rules: [], default: "deny" });
    expect(one.forTenant("other")).toBeUndefined();
  }
  again.forgetSession("s1");
  expect(again.forSession("s1")).toBeUndefined();
  const rows = await store.read("SELECT * FROM audit ORDER BY id");
  expect(rows.map(({ tenant, session, kind, actor, at_ms }) => ({ tenant, session, kind, actor, at_ms }))).toEqual([
    { tenant: "acme", session: null, kind: "policy", actor: "key-a", at_ms: 5 },
    { tenant: "acme", session: "s1", kind: "policy", actor: "server", at_ms: 5 },
  ]);
  expect(String(rows[0]?.["entry"])).toContain("no-bash");
  await store.close();
});

test("a document for nobody, or a wrong one, changes nothing", async () => {
  const store = await storeWithTenant();
  const policies = await createPolicies(store);
  expect(await problem(policies.setTenant("nobody", NOTHING, SERVER_ACTOR))).toBe("not_found");
  expect(await problem(policies.setSession("s2", NOTHING, SERVER_ACTOR))).toBe("not_found");
  expect(await problem(policies.setTenant("acme", { default: "allow" }, SERVER_ACTOR))).toBe("bad_request");
  expect(await store.read("SELECT id FROM tenants WHERE policy IS NOT NULL")).toEqual([]);
  expect(await store.read("SELECT id FROM audit")).toEqual([]);
  await store.close();
});

test("a stored document that cannot be read denies everything", async () => {
  const store = await storeWithTenant();
  for (const stored of ["{", "null", '{"default":"allow"}', '{"rules":[{"id":"x","effect":"maybe"}]}']) {
    await store.write([{ sql: "UPDATE tenants SET policy = ? WHERE id = 'acme'", params: [stored] }]);
    const policies = await createPolicies(store);
    expect(policies.forTenant("acme")).toMatchObject({ rules: [{ effect: "deny" }], default: "deny" });
  }
  await store.close();
});

const fieldOf = (parse: () => unknown): unknown => {
  try {
    return parse() && "accepted";
  } catch (error) {
    return error instanceof BrokerError ? error.details?.["field"] : error;
  }
};
const ok = { id: "ok", effect: "deny" };

verifies("POLICY", "a wrong document is refused, and the field names the rule by its index", () => {
  const table: readonly (readonly [unknown, string])[] = [
    [{ default: "allow" }, "default"],
    [{ expire: { after_s: 60, effect: "allow" } }, "expire.effect"],
    [{ expire: { after_s: 0, effect: "deny" } }, "expire.after_s"],
    [{ rules: {} }, "rules"],
    [{ extra: 1 }, "extra"],
    [{ rules: [ok, { effect: "deny" }] }, "rules.1.id"],
    [{ rules: [ok, ok] }, "rules.1.id"],
    [{ rules: [ok, { id: "a b", effect: "deny" }] }, "rules.1.id"],
    [{ rules: [{ id: "a", effect: "maybe" }] }, "rules.0.effect"],
    [{ rules: [{ id: "a", effect: "deny", tool: ["Bash"] }] }, "rules.0"],
    [{ rules: [{ id: "a", effect: "deny", tools: [] }] }, "rules.0.tools"],
    [{ rules: [{ id: "a", effect: "deny", tools: ["Bash(git *)"] }] }, "rules.0.tools.0"],
    [{ rules: [{ id: "a", effect: "allow" }] }, "rules.0.tools"],
    [{ rules: [{ id: "a", effect: "allow", path: ["**"] }] }, "rules.0.tools"],
    [{ rules: [{ id: "a", effect: "allow", tools: ["*"], kinds: ["question"] }] }, "rules.0.kinds"],
    [{ rules: [{ id: "a", effect: "deny", kinds: ["plan", "hook"] }] }, "rules.0.kinds.1"],
    [{ rules: [{ id: "a", effect: "allow", tools: ["AskUserQuestion"] }] }, "rules.0.tools"],
    [{ rules: [{ id: "a", effect: "allow", tools: ["ExitPlanMode"] }] }, "rules.0.kinds"],
    [{ rules: [{ id: "a", effect: "allow", tools: ["Bash"], input: { command: "git *" } }] }, "rules.0.input"],
    [{ rules: [{ id: "a", effect: "deny", command: ["git *", "a; b"] }] }, "rules.0.command.1"],
    [{ rules: [{ id: "a", effect: "deny", command: ["a > b"] }] }, "rules.0.command.0"],
    [{ rules: [{ id: "a", effect: "deny", command: [" "] }] }, "rules.0.command.0"],
    [{ rules: [{ id: "a", effect: "deny", command: ["a"], tools: ["Read"] }] }, "rules.0.command"],
    [{ rules: [{ id: "a", effect: "deny", command: ["a"], path: ["b"] }] }, "rules.0.path"],
    [{ rules: [{ id: "a", effect: "deny", path: ["a/../b"] }] }, "rules.0.path.0"],
    [{ rules: [{ id: "a", effect: "deny", path: ["a/"] }] }, "rules.0.path.0"],
    [{ rules: [{ id: "a", effect: "deny", path: ["ok", "~/a"] }] }, "rules.0.path.1"],
    [{ rules: [{ id: "a", effect: "deny", path: ["src**"] }] }, "rules.0.path.0"],
    [{ rules: [{ id: "a", effect: "deny", input: {} }] }, "rules.0.input"],
    [{ rules: [{ id: "a", effect: "deny", versions: "^2.1" }] }, "rules.0.versions"],
    [{ rules: [{ id: "a", effect: "ask", message: "x" }] }, "rules.0.message"],
    [{ rules: [{ id: "a", effect: "allow", tools: ["*"], two_approvers: true }] }, "rules.0.two_approvers"],
    [{ rules: Array.from({ length: 201 }, (_, index) => ({ id: `r${index}`, effect: "deny" })) }, "rules"],
    [null, "body"],
    [[], "body"],
  ];
  expect(table.map(([body]) => [body, fieldOf(() => parseTenantPolicy(body))])).toEqual(table);
  expect(fieldOf(() => parseSessionPolicy({ grants: { stored_rules: true } }))).toBe("grants.stored_rules");
  expect(fieldOf(() => parseTenantPolicy({ grants: { stored_rules: true } }))).toBe("accepted");
});

test("a question of a dry run is completed: its kind follows from its tool", () => {
  const kindOf = (tool_name: string): string => parsePolicyCheck({ question: { tool_name } }).question.kind;
  expect(["Bash", "AskUserQuestion", "ExitPlanMode"].map(kindOf)).toEqual(["permission", "question", "plan"]);
  expect(parsePolicyCheck({ question: { kind: "elicitation" }, session_id: "s" })).toEqual({
    question: { kind: "elicitation", tool_name: "", input: {}, cwd: "/workspace", mode: null, version: null },
    session_id: "s",
  });
  expect(fieldOf(() => parsePolicyCheck({ question: { cwd: "src" } }))).toBe("question.cwd");
});
