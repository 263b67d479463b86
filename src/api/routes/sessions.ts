import { parseDeletionQuery, parseSessionListQuery } from "../../protocol/http.schema.ts";
import { parseNewSession, parseSessionPatch } from "../../protocol/sessions.schema.ts";
import type { SessionFilter } from "../../sessions/port.ts";
import { actorOf } from "../actor.ts";
import { type Call, findSession, type Route, refuseNarrowed, scopeOf, sessionOf } from "../context.ts";
import { idempotencyOf } from "../idempotency.ts";
import { allowFolder } from "./fork.ts";

async function create(call: Call): Promise<unknown> {
  const { context, principal, request, reply } = call;
  refuseNarrowed(principal);
  const input = parseNewSession(request.body);
  context.auth.allow(principal, context.auth.actionOfCreation(input));
  if (input.resume_from !== undefined) {
    const source = await findSession(context, principal, input.resume_from.session_id);
    allowFolder(call, source, input.cwd, "default");
  }
  const owner = { tenant: principal.tenant, actor: actorOf(call), ...idempotencyOf(request) };
  const view = await context.sessions.create(input, owner);
  return reply.code(201).header("location", `/v1/sessions/${view.id}`).send(view);
}

function filterOf({ request, principal }: Call): SessionFilter {
  const { limit, cursor, state, name, metadata } = parseSessionListQuery(request.query);
  return {
    tenant: scopeOf(principal),
    limit,
    ...(state !== undefined && { state }),
    ...(name !== undefined && { name }),
    ...(cursor !== undefined && { cursor }),
    ...(Object.keys(metadata).length > 0 && { metadata }),
  };
}

async function list(call: Call): Promise<unknown> {
  const { context, principal } = call;
  const filter = filterOf(call);
  if (principal.sessionId === undefined) return context.sessions.list(filter);
  const session = await context.sessions.find(principal.sessionId, filter.tenant);
  return { sessions: session === undefined ? [] : [session.view()] };
}

/** On record before it is done: a session that is purged leaves nothing else behind. */
async function remove(call: Call): Promise<unknown> {
  const { auth } = call.context;
  const { purge } = parseDeletionQuery(call.request.query);
  if (purge) auth.allow(call.principal, "administer");
  const session = await sessionOf(call);
  const { id, tenant } = session;
  const subtype = purge ? "purge" : "end";
  await auth.record({
    kind: "session",
    tenant,
    session_id: id,
    actor: actorOf(call),
    subtype,
    outcome: "accepted",
  });
  await session.end();
  if (!purge) return session.view();
  await call.context.sessions.purge(session.id);
  return call.reply.code(204).send();
}

export const SESSION_ROUTES: readonly Route[] = [
  { method: "POST", url: "/v1/sessions", access: "drive", carriesQuery: true, handle: create },
  { method: "GET", url: "/v1/sessions", access: "read", handle: list },
  { method: "GET", url: "/v1/sessions/:id", access: "read", handle: async (call) => (await sessionOf(call)).view() },
  {
    method: "PATCH",
    url: "/v1/sessions/:id",
    access: "drive",
    handle: async (call) => (await sessionOf(call)).update(parseSessionPatch(call.request.body), actorOf(call)),
  },
  { method: "DELETE", url: "/v1/sessions/:id", access: "drive", handle: remove },
  {
    method: "GET",
    url: "/v1/sessions/:id/requests",
    access: "read",
    handle: async (call) => ({ requests: (await sessionOf(call)).standing().openRequests }),
  },
];
