import { parseNewKey, parseNewTicket } from "../../protocol/http.schema.ts";
import { BrokerError } from "../../protocol/problems.ts";
import { originOf } from "../actor.ts";
import { type Call, findSession, pathId, type Route, refuseNarrowed } from "../context.ts";

async function createTicket(call: Call): Promise<unknown> {
  const { context, principal, request, reply } = call;
  const { auth } = context;
  const { session_id, roles, ttl_s } = parseNewTicket(request.body);
  if (session_id !== undefined) await findSession(context, principal, session_id);
  const wanted = {
    ...(session_id !== undefined && { sessionId: session_id }),
    ...(roles !== undefined && { roles }),
    ...(ttl_s !== undefined && { ttlMs: ttl_s * 1000 }),
  };
  const { ticket, expiresAtMs } = await auth.createTicket(principal, wanted, originOf(call));
  return reply.code(201).send({ ticket, expires_at_ms: expiresAtMs });
}

/** The tenant of a new key: as asked for, else its session's, else its maker's. @throws BrokerError not_found */
async function keyTenant({ context, principal }: Call, tenant: string | undefined, sessionId: string | undefined) {
  if (sessionId === undefined) return tenant ?? principal.tenant;
  const session = await findSession(context, principal, sessionId);
  if (tenant === undefined || tenant === session.tenant) return session.tenant;
  throw new BrokerError("not_found", "There is no session with this id.");
}

async function createKey(call: Call): Promise<unknown> {
  const { context, principal, request, reply } = call;
  refuseNarrowed(principal);
  const { name, tenant, roles, session_id, expires_at_ms } = parseNewKey(request.body);
  if (expires_at_ms !== undefined && expires_at_ms <= Date.now()) {
    throw new BrokerError("bad_request", "expires_at_ms: is in the past. Choose a later time.", {
      details: { field: "expires_at_ms" },
    });
  }
  const wanted = {
    name: name ?? "",
    tenant: await keyTenant(call, tenant, session_id),
    ...(roles !== undefined && { roles }),
    ...(session_id !== undefined && { sessionId: session_id }),
    ...(expires_at_ms !== undefined && { expiresAtMs: expires_at_ms }),
  };
  return reply.code(201).send(await context.auth.createKey(principal, wanted, originOf(call)));
}

async function listKeys({ context, principal }: Call): Promise<unknown> {
  refuseNarrowed(principal);
  return { keys: await context.auth.listKeys(principal) };
}

async function revokeKey(call: Call): Promise<unknown> {
  const { context, principal, request } = call;
  refuseNarrowed(principal);
  return context.auth.revokeKey(principal, pathId(request), originOf(call));
}

export const ACCESS_ROUTES: readonly Route[] = [
  { method: "POST", url: "/v1/tickets", access: "read", handle: createTicket },
  { method: "POST", url: "/v1/keys", access: "administer", handle: createKey },
  { method: "GET", url: "/v1/keys", access: "administer", handle: listKeys },
  { method: "DELETE", url: "/v1/keys/:id", access: "administer", handle: revokeKey },
];
