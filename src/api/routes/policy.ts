import { decide } from "../../auth/policy/decide.ts";
import type { Principal } from "../../auth/port.ts";
import { parsePolicyCheck, parsePolicyQuery } from "../../protocol/policy.schema.ts";
import type { Policy, Verdict } from "../../protocol/policy.ts";
import { BrokerError } from "../../protocol/problems.ts";
import { actorOf } from "../actor.ts";
import { type Call, findSession, type Route, refuseNarrowed, scopeOf, sessionOf } from "../context.ts";

/** What holds where nobody has stored a document. */
const NO_POLICY: Policy = Object.freeze({ rules: [], default: "ask" });

/** Whose policy: an admin's own tenant's; an operator's choice. @throws BrokerError forbidden */
function tenantOf(principal: Principal, asked: string | undefined): string {
  if (asked === undefined || asked === principal.tenant || scopeOf(principal) === undefined) {
    return asked ?? principal.tenant;
  }
  throw new BrokerError("forbidden", "tenant: only operators reach other tenants' policies. Leave it out.", {
    details: { field: "tenant" },
  });
}

/** The tenant that the query names. @throws BrokerError bad_request, forbidden */
function namedTenant({ principal, request }: Call): string {
  refuseNarrowed(principal);
  return tenantOf(principal, parsePolicyQuery(request.query).tenant);
}

async function setTenantPolicy(call: Call): Promise<Policy> {
  return call.context.policies.setTenant(namedTenant(call), call.request.body, actorOf(call));
}

async function sessionPolicy(call: Call): Promise<Policy> {
  const { id } = await sessionOf(call);
  return call.context.policies.forSession(id) ?? NO_POLICY;
}

async function setSessionPolicy(call: Call): Promise<Policy> {
  const { principal, context, request } = call;
  // Who is let into one session only does not write the rules that hold him there.
  refuseNarrowed(principal);
  const { id } = await sessionOf(call);
  return context.policies.setSession(id, request.body, actorOf(call));
}

/** A dry run: what would be decided, by the policies as they are now. Nothing is asked, answered or recorded. */
async function check(call: Call): Promise<Verdict> {
  const { context, principal, request } = call;
  refuseNarrowed(principal);
  const { question, session_id } = parsePolicyCheck(request.body);
  const asked = parsePolicyQuery(request.query).tenant;
  if (session_id === undefined)
    return decide({ tenant: context.policies.forTenant(tenantOf(principal, asked)) }, question);
  const session = await findSession(context, principal, session_id);
  return decide(
    { tenant: context.policies.forTenant(session.tenant), session: context.policies.forSession(session_id) },
    question,
  );
}

export const POLICY_ROUTES: readonly Route[] = [
  {
    method: "GET",
    url: "/v1/policy",
    access: "administer",
    handle: async (call) => call.context.policies.forTenant(namedTenant(call)) ?? NO_POLICY,
  },
  { method: "PUT", url: "/v1/policy", access: "administer", handle: setTenantPolicy },
  { method: "POST", url: "/v1/policy/check", access: "administer", handle: check },
  { method: "GET", url: "/v1/sessions/:id/policy", access: "administer", handle: sessionPolicy },
  { method: "PUT", url: "/v1/sessions/:id/policy", access: "administer", handle: setSessionPolicy },
];
