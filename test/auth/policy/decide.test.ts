import fc from "fast-check";
import { expect, test } from "vitest";
import { decide } from "../../../src/auth/policy/decide.ts";
import { questionOf } from "../../../src/auth/policy/question.ts";
import type { Policy, PolicyQuestion, PolicyRule } from "../../../src/protocol/policy.ts";
import { verifies } from "../../kit/verifies.ts";

const question = (part: Partial<PolicyQuestion> = {}): PolicyQuestion => ({
  kind: "permission",
  tool_name: "WebFetch",
  input: { url: "https://docs.example.com/a" },
  cwd: "/w/s1",
  mode: "default",
  version: "2.1.332",
  ...part,
});
const made = (rules: readonly PolicyRule[], rest: Partial<Policy> = {}): Policy => ({ rules, default: "ask", ...rest });
const rule = (id: string, effect: PolicyRule["effect"], rest: Partial<PolicyRule> = {}): PolicyRule => ({
  id,
  effect,
  ...(effect === "allow" && { tools: ["*"] }),
  ...rest,
});
const one = (effect: PolicyRule["effect"], rest: Partial<PolicyRule>, asked: Partial<PolicyQuestion>): string =>
  decide({ tenant: made([rule("r", effect, rest)]) }, question(asked)).effect;

verifies(
  "POLICY",
  "the order: the tenant's denies, the session's rules, the tenant's rules, the stricter default",
  () => {
    const by = (tenant: Policy | undefined, session: Policy | undefined): string =>
      decide({ tenant, session }, question()).decided_by;
    const allow = made([rule("yes", "allow")]);
    const deny = made([rule("no", "deny")]);
    expect(by(made([rule("yes", "allow"), rule("no", "deny")]), allow)).toBe("policy:tenant/no");
    expect(by(allow, deny)).toBe("policy:session/no");
    expect(by(made([rule("maybe", "ask")]), allow)).toBe("policy:session/yes");
    expect(by(allow, made([]))).toBe("policy:tenant/yes");
    expect(by(made([rule("maybe", "ask"), rule("yes", "allow")]), undefined)).toBe("policy:tenant/maybe");
    expect(by(undefined, made([rule("yes", "allow"), rule("no", "deny")]))).toBe("policy:session/yes");
    expect(by(undefined, undefined)).toBe("policy:default");
    for (const [tenant, session, effect] of [
      ["ask", "ask", "ask"],
      ["deny", "ask", "deny"],
      ["ask", "deny", "deny"],
      ["deny", "deny", "deny"],
    ] as const) {
      const verdict = decide(
        { tenant: made([], { default: tenant }), session: made([], { default: session }) },
        question(),
      );
      expect(verdict).toMatchObject({ effect, decided_by: "policy:default", approvers: 1 });
    }
  },
);

test("a deny always has words for the model", () => {
  expect(decide({ tenant: made([rule("no", "deny", { message: "use the proxy" })]) }, question()).message).toBe(
    "use the proxy",
  );
  expect(decide({ tenant: made([rule("no", "deny")]) }, question()).message).toContain("policy:tenant/no");
  expect(decide({ tenant: made([], { default: "deny" }) }, question()).message).toContain("policy:default");
});

verifies(
  "POLICY",
  "no rule can answer a question, an elicitation, a dialog, or what the agent keeps for a person",
  () => {
    const all = made([
      rule("yes", "allow", {
        kinds: ["permission", "question", "plan", "hook", "mcp", "elicitation", "dialog", "other"],
      }),
    ]);
    const ask = (part: Partial<PolicyQuestion>): string => decide({ tenant: all, session: all }, question(part)).effect;
    expect(ask({})).toBe("allow");
    expect(ask({ kind: "plan", tool_name: "ExitPlanMode" })).toBe("allow");
    for (const kind of ["question", "hook", "mcp", "elicitation", "dialog", "other"] as const)
      expect(ask({ kind })).toBe("ask");
    // Said to be a plain permission, it is a question all the same.
    expect(ask({ tool_name: "AskUserQuestion" })).toBe("ask");
    expect(ask({ requires_person: true })).toBe("ask");
    expect(one("allow", {}, { kind: "plan", tool_name: "ExitPlanMode" })).toBe("ask");
    expect(one("allow", {}, { tool_name: "ExitPlanMode" })).toBe("ask");
    expect(one("deny", {}, { kind: "question", tool_name: "AskUserQuestion" })).toBe("deny");
  },
);

test("no policy is asked about the hooks and tools of a client", () => {
  for (const kind of ["hook", "mcp"] as const) {
    expect(one("deny", {}, { kind })).toBe("ask");
    expect(one("deny", { kinds: [kind] }, { kind })).toBe("ask");
    expect(decide({ tenant: made([], { default: "deny" }) }, question({ kind })).effect).toBe("ask");
  }
  for (const kind of ["elicitation", "dialog", "other"] as const) {
    expect(decide({ tenant: made([], { default: "deny" }) }, question({ kind, tool_name: "" })).effect).toBe("deny");
  }
});

test.each([
  [["WebFetch"], "WebFetch", true],
  [["webfetch"], "WebFetch", false],
  [["Web*"], "WebFetch", true],
  [["mcp__github__*"], "mcp__github__create_issue", true],
  [["mcp__github__*"], "mcp__gitlab__create_issue", false],
  [["Read", "Edit"], "Edit", true],
  [["Read"], "", false],
])("tools %j and %s: %s", (tools, tool_name, matches) => {
  expect(one("allow", { tools }, { tool_name })).toBe(matches ? "allow" : "ask");
  expect(one("deny", { tools }, { tool_name })).toBe(matches ? "deny" : "ask");
});

test.each([
  [">=2.1.300", "2.1.332", true],
  [">=2.1.300", "2.1.300", true],
  [">=2.1.300", "2.1.299", false],
  [">2.1", "2.1.0", false],
  [">=2.1.300 <3", "3.0.0", false],
  ["<=2", "2.0.0", true],
  ["2.1.332", "2.1.332 (Claude Code)", true],
  ["=2.1", "2.1.1", false],
])("versions %s and %s: %s", (versions, version, matches) => {
  expect(one("allow", { versions }, { version })).toBe(matches ? "allow" : "ask");
  expect(one("deny", { versions }, { version })).toBe(matches ? "deny" : "ask");
});

test("what is not known is never allowed and always caught", () => {
  for (const version of [null, "", "nightly"]) {
    expect(one("allow", { versions: ">=1" }, { version })).toBe("ask");
    expect(one("deny", { versions: ">=1" }, { version })).toBe("deny");
  }
  expect(one("allow", { modes: ["default"] }, { mode: null })).toBe("ask");
  expect(one("deny", { modes: ["default"] }, { mode: null })).toBe("deny");
  expect(one("deny", { modes: ["plan"] }, { mode: "default" })).toBe("ask");
});

test("globs over fields of the input", () => {
  const input = { url: "https://docs.example.com/*" };
  expect(one("allow", { input }, {})).toBe("allow");
  for (const url of [
    "https://docs.example.com.evil.example/",
    "HTTPS://docs.example.com/a",
    "https://docs.example.com/a\u0000",
    ["https://docs.example.com/a"],
    null,
  ]) {
    expect(one("allow", { input }, { input: { url } })).toBe("ask");
  }
  expect(one("deny", { input: { url: "*internal*" } }, { input: { url: "http://INTERNAL/" } })).toBe("deny");
  expect(one("deny", { input: { url: "*internal*" } }, { input: { url: { host: "internal" } } })).toBe("deny");
  expect(one("deny", { input: { url: "*internal*" } }, { input: { other: "internal" } })).toBe("ask");
  expect(one("deny", { input: { toString: "*" } }, { input: {} })).toBe("ask");
  expect(one("deny", { input: { url: "*internal*" } }, { input: { url: "x".repeat(2_000_000) } })).toBe("deny");
});

test("two approvers: a session's ask does not lower what the tenant's demands", () => {
  const two = made([rule("two", "ask", { two_approvers: true })]);
  expect(decide({ tenant: two }, question())).toMatchObject({ decided_by: "policy:tenant/two", approvers: 2 });
  expect(decide({ tenant: two, session: made([rule("one", "ask")]) }, question())).toMatchObject({
    decided_by: "policy:session/one",
    approvers: 2,
  });
  expect(decide({ tenant: two, session: made([rule("no", "deny")]) }, question()).approvers).toBe(1);
});

test("expiry and grants go with an ask only; the session's word comes first, stored rules need the tenant", () => {
  const tenant = made([rule("yes", "allow", { tools: ["Read"] })], {
    expire: { after_s: 60, effect: "deny" },
    grants: { add_rules: true, stored_rules: true },
  });
  expect(decide({ tenant }, question())).toMatchObject({
    expire: { after_ms: 60_000, effect: "deny" },
    grants: { set_mode: false, add_rules: true, stored_rules: true },
  });
  expect(decide({ tenant }, question({ tool_name: "Read" }))).toEqual({
    effect: "allow",
    decided_by: "policy:tenant/yes",
    approvers: 1,
  });
  const session = made([], { expire: { after_s: 5, effect: "leave" }, grants: { add_rules: false, set_mode: true } });
  expect(decide({ tenant, session }, question())).toMatchObject({
    expire: { after_ms: 5_000, effect: "leave" },
    grants: { set_mode: true, add_rules: false, stored_rules: true },
  });
  expect(decide({ session: made([], { grants: { stored_rules: true } }) }, question()).grants).toBeUndefined();
});

verifies("POLICY", "whatever the documents are: a tenant's deny wins, and no allow comes without an allow rule", () => {
  const anyRule = fc.record(
    {
      id: fc.constantFrom("a", "b", "c"),
      effect: fc.constantFrom("allow" as const, "deny" as const, "ask" as const),
      tools: fc.constantFrom(["*"], ["WebFetch"], ["Read"]),
      kinds: fc.constantFrom(["permission" as const], ["question" as const]),
      modes: fc.constantFrom(["default"], ["plan"]),
    },
    { requiredKeys: ["id", "effect", "tools"] },
  );
  const anyPolicy = fc.option(
    fc.record({
      rules: fc.array(anyRule, { maxLength: 4 }),
      default: fc.constantFrom("ask" as const, "deny" as const),
    }),
    { nil: undefined },
  );
  const asked = fc.record({
    kind: fc.constantFrom("permission" as const, "question" as const, "elicitation" as const),
    tool_name: fc.constantFrom("WebFetch", "Read", "AskUserQuestion"),
    mode: fc.constantFrom("default", null),
  });
  fc.assert(
    fc.property(anyPolicy, anyPolicy, asked, (tenant, session, part) => {
      const verdict = decide({ tenant, session }, question(part));
      const denied = tenant?.rules.some((item) => decide({ tenant: made([item]) }, question(part)).effect === "deny");
      if (denied) expect(verdict.effect).toBe("deny");
      if (verdict.effect === "allow") {
        expect(part.kind).toBe("permission");
        const [, scope, id] = /^policy:(tenant|session)\/(.*)$/.exec(verdict.decided_by) ?? [];
        const document = scope === "tenant" ? tenant : session;
        expect(document?.rules.some((item) => item.id === id && item.effect === "allow")).toBe(true);
      }
    }),
    { numRuns: 2_000 },
  );
});

test("a request of the agent as a policy sees it", () => {
  const request = { subtype: "can_use_tool", tool_name: "Bash", input: { command: "ls" } };
  const seen = { kind: "permission" as const, mode: "plan", version: null };
  expect(questionOf({ ...seen, request }, "/w")).toEqual({
    kind: "permission",
    tool_name: "Bash",
    input: { command: "ls" },
    cwd: "/w",
    mode: "plan",
    version: null,
  });
  expect(questionOf({ ...seen, request: { ...request, requires_user_interaction: true } }, "/w").requires_person).toBe(
    true,
  );
  expect(questionOf({ ...seen, request: { ...request, server_policy_ask_only: false } }, "/w").requires_person).toBe(
    true,
  );
  expect(questionOf({ ...seen, request: { subtype: "elicitation", input: "x" } }, "/w")).toMatchObject({
    tool_name: "",
    input: {},
  });
});
