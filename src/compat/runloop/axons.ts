import { parseAxon, parseAxonList, parseAxonPatch, parseEventList } from "../../protocol/runloop.schema.ts";
import { parseNewSession, parseSessionPatch } from "../../protocol/sessions.schema.ts";
import type { SessionFilter } from "../../sessions/port.ts";
import { actorOf, axonOf, type RunloopCall, type RunloopRoute, refuseNarrowed, requestIdOf, scopeOf } from "./call.ts";
import { historyPage } from "./history.ts";
import { publish } from "./publish.ts";
import { subscribe } from "./subscribe.ts";

interface Labelled {
  readonly id: string;
  readonly created_at_ms: number;
  readonly metadata: Readonly<Record<string, string>>;
  readonly name: string | null;
}

/** AxonView (spec 1.2). An axon is a session: the id is the same. */
const axonView = ({ id, created_at_ms, metadata, name }: Labelled): Labelled => ({ id, created_at_ms, metadata, name });

async function create(call: RunloopCall): Promise<unknown> {
  const { context, principal, request } = call;
  refuseNarrowed(principal);
  const { name, metadata } = parseAxon(request.body);
  const input = parseNewSession({ ...(name && { name }), ...(metadata && { metadata }) });
  const key = requestIdOf(request);
  const owner = { tenant: principal.tenant, actor: actorOf(call), ...(key !== undefined && { idempotencyKey: key }) };
  return axonView(await context.sessions.create(input, { ...owner, agentless: true }));
}

async function update(call: RunloopCall): Promise<unknown> {
  const session = await axonOf(call);
  const { metadata } = parseAxonPatch(call.request.body);
  const patch = parseSessionPatch(metadata ? { metadata } : {});
  return axonView(metadata ? await session.update(patch, actorOf(call)) : session.view());
}

async function list(call: RunloopCall): Promise<unknown> {
  const { context, principal, request } = call;
  const { sessions } = context;
  const { limit, starting_after, id, name, search, include_total_count, ...metadata } = parseAxonList(request.query);
  const filter: SessionFilter = {
    tenant: scopeOf(principal),
    open: true,
    limit,
    ...metadata,
    ...(id !== undefined && { id }),
    ...(principal.sessionId !== undefined && { id: principal.sessionId }),
    ...(name !== undefined && { namePrefix: name }),
    ...(search !== undefined && { search }),
    ...(starting_after !== undefined && { afterId: starting_after }),
  };
  const page = await sessions.list(filter);
  const total = include_total_count ? { total_count: await sessions.count(filter) } : {};
  return { axons: page.sessions.map(axonView), has_more: page.next !== undefined, ...total };
}

/** The agent and its devbox end with it; the session stays readable for those who know it as one. */
async function remove(call: RunloopCall): Promise<unknown> {
  const session = await axonOf(call);
  await call.context.auth.record({
    kind: "session",
    tenant: session.tenant,
    session_id: session.id,
    actor: actorOf(call),
    subtype: "end",
    outcome: "accepted",
  });
  await call.context.devboxes.shutDownOf(session.id, "api_shutdown", actorOf(call));
  await session.end();
  await call.context.sql.remove(session.tenant, session.id);
  return {};
}

async function events(call: RunloopCall): Promise<unknown> {
  const { context, principal, request, reply } = call;
  const { limit, starting_after, include_total_count } = parseEventList(request.query);
  const { log } = await axonOf(call);
  const restricted = context.auth.may(principal, "drive");
  const query = { limit, restricted, ...(starting_after !== undefined && { before: starting_after }) };
  return reply.type("application/json").send(await historyPage(log, query, include_total_count));
}

export const AXON_ROUTES: readonly RunloopRoute[] = [
  { method: "POST", url: "/v1/axons", access: "drive", handle: create },
  { method: "GET", url: "/v1/axons", access: "read", handle: list },
  {
    method: "GET",
    url: "/v1/axons/:id",
    access: "read",
    handle: async (call) => axonView((await axonOf(call)).view()),
  },
  { method: "POST", url: "/v1/axons/:id", access: "drive", handle: update },
  { method: "DELETE", url: "/v1/axons/:id", access: "drive", handle: remove },
  // Whose answer counts is for the request's kind to say, so roles are asked there.
  { method: "POST", url: "/v1/axons/:id/publish", access: "read", carriesPayload: true, handle: publish },
  { method: "GET", url: "/v1/axons/:id/events", access: "read", handle: events },
  { method: "GET", url: "/v1/axons/:id/subscribe/sse", access: "read", handle: subscribe },
];
