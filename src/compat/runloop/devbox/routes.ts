import type { JsonObject } from "../../../protocol/json.ts";
import { BrokerError } from "../../../protocol/problems.ts";
import { parseAwaited, parseDevboxList, parseDevboxPatch } from "../../../protocol/runloop.schema.ts";
import { actorOf, pathId, type RunloopCall, type RunloopRoute, refuseNarrowed, requestIdOf, scopeOf } from "../call.ts";
import { agentLogs } from "./logs.ts";
import type { Devbox } from "./record.ts";
import { devboxView } from "./status.ts";

const SETTLED = ["running", "failure", "shutdown"] as const;

/** The devbox that the path names. Foreign and missing look the same. @throws BrokerError not_found */
async function devboxOf({ context, principal, request }: RunloopCall): Promise<Devbox> {
  const devbox = await context.devboxes.find(pathId(request));
  const scope = scopeOf(principal);
  const isTheirs = scope === undefined || devbox?.tenant === scope;
  const mayLook = principal.sessionId === undefined || principal.sessionId === devbox?.session;
  if (devbox !== undefined && isTheirs && mayLook) return devbox;
  throw new BrokerError("not_found", "Devbox not found.");
}

async function viewOf({ context }: RunloopCall, { id }: Devbox): Promise<JsonObject> {
  const devbox = await context.devboxes.find(id);
  if (devbox === undefined) throw new BrokerError("not_found", "Devbox not found.");
  return devboxView(devbox, await context.devboxes.statusOf(devbox));
}

async function make(call: RunloopCall): Promise<Devbox> {
  const { context, principal, request } = call;
  refuseNarrowed(principal);
  return context.createDevbox({
    context,
    principal,
    actor: actorOf(call),
    body: request.body,
    requestId: requestIdOf(request),
  });
}

async function createAndAwait(call: RunloopCall): Promise<unknown> {
  const { devboxes, options, host } = call.context;
  const devbox = await make(call);
  await devboxes.reached(devbox.id, SETTLED, options.createHoldMs, host.live.draining);
  return viewOf(call, devbox);
}

/** A client asks again at once after 408, so no proxy takes a long silence for the end. */
async function waitForStatus(call: RunloopCall): Promise<unknown> {
  const { context, request, reply } = call;
  const { statuses } = parseAwaited(request.body);
  const devbox = await devboxOf(call);
  const isThere = await context.devboxes.reached(
    devbox.id,
    statuses,
    context.options.holdMs,
    context.host.live.draining,
  );
  if (isThere) return viewOf(call, devbox);
  const message = `The devbox is not yet ${statuses.join(" or ")}. Ask again.`;
  return reply.code(408).send({ code: "timeout", message, retry: true });
}

async function list(call: RunloopCall): Promise<unknown> {
  const { context, principal, request } = call;
  const { limit, starting_after, status, include_total_count } = parseDevboxList(request.query);
  const all = (await context.devboxes.rows.list(scopeOf(principal))).filter(
    ({ session }) => principal.sessionId === undefined || principal.sessionId === session,
  );
  const views = await Promise.all(
    all.map(async (devbox) => devboxView(devbox, await context.devboxes.statusOf(devbox))),
  );
  const fitting = views.filter((view) => status === undefined || view["status"] === status);
  const start = starting_after === undefined ? 0 : fitting.findIndex(({ id }) => id === starting_after) + 1;
  const devboxes = fitting.slice(start, start + limit);
  const total = include_total_count ? { total_count: fitting.length } : {};
  return { devboxes, has_more: start + limit < fitting.length, ...total };
}

async function update(call: RunloopCall): Promise<unknown> {
  const devbox = await devboxOf(call);
  const { name, metadata } = parseDevboxPatch(call.request.body);
  await call.context.devboxes.change(devbox.id, { ...(name && { name }), ...(metadata && { metadata }) });
  return viewOf(call, devbox);
}

async function keepAlive(call: RunloopCall): Promise<unknown> {
  const { id, keep_alive_s, expires_at_ms } = await devboxOf(call);
  if (keep_alive_s !== undefined && expires_at_ms !== undefined) {
    await call.context.devboxes.change(id, { expires_at_ms: Date.now() + keep_alive_s * 1000 });
  }
  return {};
}

/** @throws BrokerError bad_request for one that is shut down */
async function openDevboxOf(call: RunloopCall): Promise<Devbox> {
  const devbox = await devboxOf(call);
  if (devbox.shutdown === undefined) return devbox;
  throw new BrokerError("bad_request", "The devbox is shut down. Create another one.");
}

const acts = (act: (call: RunloopCall, devbox: Devbox) => Promise<unknown>) => async (call: RunloopCall) => {
  const devbox = await openDevboxOf(call);
  await act(call, devbox);
  return viewOf(call, devbox);
};

async function shutDown(call: RunloopCall): Promise<unknown> {
  const devbox = await devboxOf(call);
  await call.context.devboxes.shutDown(devbox, "api_shutdown", actorOf(call));
  return viewOf(call, devbox);
}

async function logs(call: RunloopCall): Promise<unknown> {
  const { session: id, tenant } = await devboxOf(call);
  const session = await call.context.sessions.find(id, tenant);
  const restricted = call.context.auth.may(call.principal, "drive");
  return { logs: session === undefined ? [] : await agentLogs(session, restricted) };
}

/** What runs a command, reads a file or the like is not served: a client is told not to try again. */
export async function notServed(call: RunloopCall): Promise<never> {
  await devboxOf(call);
  throw new BrokerError("not_available", "This part of Runloop's API is not served. The agent itself can do it.");
}

export const DEVBOX_ROUTES: readonly RunloopRoute[] = [
  { method: "POST", url: "/v1/devboxes/create_and_await_running", access: "drive", handle: createAndAwait },
  { method: "POST", url: "/v1/devboxes", access: "drive", handle: async (call) => viewOf(call, await make(call)) },
  { method: "GET", url: "/v1/devboxes", access: "read", handle: list },
  {
    method: "GET",
    url: "/v1/devboxes/:id",
    access: "read",
    handle: async (call) => viewOf(call, await devboxOf(call)),
  },
  { method: "POST", url: "/v1/devboxes/:id", access: "drive", handle: update },
  { method: "POST", url: "/v1/devboxes/:id/wait_for_status", access: "read", handle: waitForStatus },
  { method: "POST", url: "/v1/devboxes/:id/keep_alive", access: "drive", handle: keepAlive },
  {
    method: "POST",
    url: "/v1/devboxes/:id/suspend",
    access: "drive",
    handle: acts((call, devbox) => call.context.devboxes.suspend(devbox, actorOf(call))),
  },
  {
    method: "POST",
    url: "/v1/devboxes/:id/resume",
    access: "drive",
    handle: acts((call, devbox) => call.context.devboxes.resume(devbox, actorOf(call))),
  },
  { method: "GET", url: "/v1/devboxes/:id/logs", access: "read", handle: logs },
  { method: "POST", url: "/v1/devboxes/:id/shutdown", access: "drive", handle: shutDown },
];
