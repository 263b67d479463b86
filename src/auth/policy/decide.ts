import type { Policy, PolicyGrants, PolicyPair, PolicyQuestion, PolicyRule, Verdict } from "../../protocol/policy.ts";
import { type Facts, factsOf, isWiring, matchesRule } from "./rule-match.ts";

interface Found {
  readonly scope: "tenant" | "session";
  readonly rule: PolicyRule;
}

function find(
  scope: Found["scope"],
  policy: Policy | undefined,
  facts: Facts,
  wanted: (rule: PolicyRule) => boolean,
): Found | undefined {
  const rule = policy?.rules.find((one) => wanted(one) && matchesRule(one, facts));
  return rule && { scope, rule };
}

/**
 * What the policies say to a question, before anyone is asked. Pure. In this order: the tenant's denies; the session's rules, the first
 * that matches; the tenant's other rules, the first that matches; the stricter of both defaults.
 */
export function decide(policies: PolicyPair, question: PolicyQuestion): Verdict {
  const { tenant, session } = policies;
  const facts = factsOf(question);
  const denied = find("tenant", tenant, facts, ({ effect }) => effect === "deny");
  if (denied !== undefined) return verdictOf(denied, policies, false);
  const own = find("session", session, facts, () => true);
  const general = find("tenant", tenant, facts, ({ effect }) => effect !== "deny");
  const found = own ?? general;
  // A session's ask does not lower what the tenant's demands.
  const two = [own, general].some((one) => one?.rule.effect === "ask" && one.rule.two_approvers === true);
  return found === undefined ? defaultVerdict(policies, facts) : verdictOf(found, policies, two);
}

function verdictOf({ scope, rule }: Found, policies: PolicyPair, twoApprovers: boolean): Verdict {
  const decided_by = `policy:${scope}/${rule.id}`;
  switch (rule.effect) {
    case "allow":
      return { effect: "allow", decided_by, approvers: 1 };
    case "deny":
      return { effect: "deny", decided_by, message: rule.message ?? denial(decided_by), approvers: 1 };
    case "ask":
      return ask(decided_by, policies, twoApprovers);
  }
}

const denial = (decidedBy: string): string => `A policy of this server denies this (${decidedBy}).`;

function defaultVerdict(policies: PolicyPair, { kind }: Facts): Verdict {
  const decided_by = "policy:default";
  const denies = policies.tenant?.default === "deny" || policies.session?.default === "deny";
  if (denies && !isWiring(kind)) return { effect: "deny", decided_by, message: denial(decided_by), approvers: 1 };
  return ask(decided_by, policies, false);
}

function ask(decided_by: string, policies: PolicyPair, twoApprovers: boolean): Verdict {
  const expire = policies.session?.expire ?? policies.tenant?.expire;
  const grants = grantsOf(policies);
  return {
    effect: "ask",
    decided_by,
    approvers: twoApprovers ? 2 : 1,
    ...(expire !== undefined && { expire: { after_ms: expire.after_s * 1000, effect: expire.effect } }),
    ...(Object.values(grants).includes(true) && { grants }),
  };
}

/**
 * What an approver's answer may change besides its own request: the session's word, else the tenant's, else no. Rules in settings files
 * outlive the session, so there the tenant must say yes and the session must not say no.
 */
function grantsOf({ tenant, session }: PolicyPair): Required<PolicyGrants> {
  const granted = (name: "set_mode" | "add_rules"): boolean =>
    session?.grants?.[name] ?? tenant?.grants?.[name] ?? false;
  return {
    set_mode: granted("set_mode"),
    add_rules: granted("add_rules"),
    stored_rules: tenant?.grants?.stored_rules === true && session?.grants?.stored_rules !== false,
  };
}
