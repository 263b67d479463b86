import { parseNewKey, parseNewTicket } from "../../protocol/http.schema.ts";
import { BrokerError } from "../../protocol/problems.ts";
import { type Call, findSession, pathId, type Route } from "../context.ts";

/** contract 3: what a new key has unless told otherwise. */
const DEFAULT_ROLES = ["driver", "approver"];

async function createTicket({ context, principal, request, reply }: Call): Promise<unknown> {
  const { auth } = context;
  const { session_id, roles, ttl_s } = parseNewTicket(request.body);
  if (session_id !== undefined) await findSession(context, principal, session_id);
  const { ticket, expiresAtMs } = await auth.createTicket(principal, {
    ...(session_id !== undefined && { sessionId: session_id }),
    ...(roles !== undefined && { roles }),
    ...(ttl_s !== undefined && { ttlMs: ttl_s * 1000 }),
  });
  return reply.code(201).send({ ticket, expires_at_ms: expiresAtMs });
}

async function createKey({ context, principal, request, reply }: Call): Promise<unknown> {
  const { name, tenant, roles, expires_at_ms } = parseNewKey(request.body);
  if (expires_at_ms !== undefined && expires_at_ms <= Date.now()) {
    throw new BrokerError("bad_request", "expires_at_ms: is in the past. Choose a later time.", {
      details: { field: "expires_at_ms" },
    });
  }
  const created = await context.auth.createKey({
    name: name ?? "",
    tenant: tenant ?? principal.tenant,
    roles: roles ?? DEFAULT_ROLES,
    ...(expires_at_ms !== undefined && { expiresAtMs: expires_at_ms }),
  });
  return reply.code(201).send(created);
}

export const ACCESS_ROUTES: readonly Route[] = [
  { method: "POST", url: "/v1/tickets", access: "read", handle: createTicket },
  { method: "POST", url: "/v1/keys", access: "operate", handle: createKey },
  {
    method: "GET",
    url: "/v1/keys",
    access: "operate",
    handle: async ({ context }) => ({ keys: await context.auth.listKeys() }),
  },
  {
    method: "DELETE",
    url: "/v1/keys/:id",
    access: "operate",
    handle: ({ context, request }) => context.auth.revokeKey(pathId(request)),
  },
];
