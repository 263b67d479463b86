import type { AnswerRight } from "../../auth/answer-tickets.ts";
import { type AuditEntry, auditWrite } from "../../auth/audit.ts";
import { BrokerError } from "../../protocol/problems.ts";
import {
  parseDeliveriesQuery,
  parseLinkAnswer,
  parseNewWebhook,
  parseWebhookQuery,
} from "../../protocol/webhooks.schema.ts";
import type { WebhookView } from "../../protocol/webhooks.ts";
import { actorOf } from "../actor.ts";
import { webhookPrincipal } from "../answer-link.ts";
import { type Call, findSession, type PublicCall, pathId, type Route, refuseNarrowed, scopeOf } from "../context.ts";
import { addressOf } from "../credentials.ts";
import { submit } from "../submit.ts";

/** Whose webhooks: an admin's own tenant's; an operator's choice. @throws BrokerError forbidden */
function tenantOf({ principal }: Call, asked: string | undefined): string {
  refuseNarrowed(principal);
  if (asked === undefined || asked === principal.tenant || scopeOf(principal) === undefined) {
    return asked ?? principal.tenant;
  }
  throw new BrokerError("forbidden", "tenant: only operators reach other tenants' webhooks. Leave it out.", {
    details: { field: "tenant" },
  });
}

const namedTenant = (call: Call): string => tenantOf(call, parseWebhookQuery(call.request.query).tenant);

/** The row of the audit record that goes with a change. The path and query of a URL are often a secret of its receiver. */
const noted = (call: Call, subtype: string, outcome: string) => (webhook: WebhookView) => {
  const { id, tenant, url, events } = webhook;
  const entry: AuditEntry = {
    kind: "webhook",
    tenant,
    actor: actorOf(call),
    subtype,
    decision: { webhook_id: id, origin: new URL(url).origin, events },
    outcome,
  };
  return [auditWrite(entry, Date.now())];
};

async function create(call: Call): Promise<unknown> {
  const tenant = namedTenant(call);
  const wanted = parseNewWebhook(call.request.body);
  const made = await call.context.webhooks.create(tenant, wanted, noted(call, "create", "created"));
  return call.reply.code(201).send(made);
}

async function remove(call: Call): Promise<unknown> {
  const id = pathId(call.request);
  await call.context.webhooks.remove(namedTenant(call), id, noted(call, "remove", "removed"));
  // Its links end with it.
  call.context.auth.answers.revoke(webhookPrincipal(id));
  return call.reply.code(204).send();
}

async function deliveries(call: Call): Promise<unknown> {
  const { tenant, ...page } = parseDeliveriesQuery(call.request.query);
  return call.context.webhooks.deliveries(tenantOf(call, tenant), pathId(call.request), page);
}

function ticketOf({ request: { params } }: PublicCall): string {
  const ticket = typeof params === "object" && params !== null && "ticket" in params ? params.ticket : undefined;
  return typeof ticket === "string" ? ticket : "";
}

/** The ticket is the whole authority: it answers its own request, once, whoever holds it. */
async function answer(call: PublicCall): Promise<unknown> {
  const { context, request, reply } = call;
  const { response } = parseLinkAnswer(request.body);
  const send = async ({ principal, requestId, commandId }: AnswerRight) => {
    const session = await findSession(context, principal, principal.sessionId);
    const inner = { subtype: "success", request_id: requestId, response };
    const payload = { type: "control_response", response: inner };
    const body = { id: commandId, event_type: "control_response", payload };
    return submit(context, {
      session,
      principal,
      actor: actorOf({ ...call, principal }),
      body,
      bytes: request.bodyBytes,
    });
  };
  const accepted = await context.auth.answers.use(ticketOf(call), addressOf(request), send);
  return reply.code(202).send(accepted);
}

export const WEBHOOK_ROUTES: readonly Route[] = [
  { method: "POST", url: "/v1/webhooks", access: "administer", handle: create },
  {
    method: "GET",
    url: "/v1/webhooks",
    access: "administer",
    handle: async (call) => ({ webhooks: await call.context.webhooks.list(namedTenant(call)) }),
  },
  { method: "DELETE", url: "/v1/webhooks/:id", access: "administer", handle: remove },
  { method: "GET", url: "/v1/webhooks/:id/deliveries", access: "administer", handle: deliveries },
  { method: "POST", url: "/v1/answers/:ticket", access: "public", handle: answer },
];
