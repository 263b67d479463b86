import type { FastifyInstance, FastifyRequest } from "fastify";
import type { Principal, TicketUse } from "../auth/port.ts";
import { parseSocketQuery } from "../protocol/http.schema.ts";
import { BrokerError } from "../protocol/problems.ts";
import { type ApiContext, pathId, type Route, refuseNarrowed } from "./context.ts";
import { authenticate } from "./credentials.ts";
import { ACCESS_ROUTES } from "./routes/access.ts";
import { AUDIT_ROUTES } from "./routes/audit.ts";
import { COMMAND_ROUTES } from "./routes/commands.ts";
import { EVENT_ROUTES } from "./routes/events.ts";
import { FORK_ROUTES } from "./routes/fork.ts";
import { PAGE_ROUTES } from "./routes/page.ts";
import { POLICY_ROUTES } from "./routes/policy.ts";
import { RUNNER_ROUTES } from "./routes/runners.ts";
import { SESSION_ROUTES } from "./routes/sessions.ts";
import { STATUS_ROUTES } from "./routes/status.ts";
import { TRANSCRIPT_ROUTES } from "./routes/transcript.ts";
import { WEBHOOK_ROUTES } from "./routes/webhooks.ts";
import { acceptSocket } from "./ws/connection.ts";
import { acceptRunner, admitRunner } from "./ws/runner.ts";

declare module "fastify" {
  interface FastifyRequest {
    /** Who asks; null on public routes, and on a socket that will say so in its first frame. */
    principal: Principal | null;
  }
}

const SOCKET_URL = "/v1/ws";
const RUNNER_URL = "/v1/runner";

/** Every HTTP route there is: nothing is registered that is not here. */
const ROUTES: readonly Route[] = [
  ...SESSION_ROUTES,
  ...COMMAND_ROUTES,
  ...EVENT_ROUTES,
  ...TRANSCRIPT_ROUTES,
  ...FORK_ROUTES,
  ...ACCESS_ROUTES,
  ...AUDIT_ROUTES,
  ...POLICY_ROUTES,
  ...WEBHOOK_ROUTES,
  ...RUNNER_ROUTES,
  ...STATUS_ROUTES,
  ...PAGE_ROUTES,
];

/** Method and path of everything that is served, in Fastify's spelling; openapi.yaml is held against it. */
export async function listRoutes(): Promise<readonly { readonly method: string; readonly url: string }[]> {
  return [...ROUTES, { method: "GET", url: SOCKET_URL }, { method: "GET", url: RUNNER_URL }].map(({ method, url }) => ({
    method,
    url,
  }));
}

const unauthenticated = (): BrokerError =>
  new BrokerError("unauthenticated", "Say who you are: Authorization: Bearer <key>, or a ticket where one is taken.");

/** Runs before the body is read: who may not call does not get to send 32 MiB. */
async function admit(context: ApiContext, route: Route, request: FastifyRequest): Promise<void> {
  if (route.access === "public") return;
  const use: TicketUse | undefined = route.takesTicket && { for: "stream", sessionId: pathId(request) };
  const principal = await authenticate(context.auth, request, request.originKind, use);
  if (principal === undefined) throw unauthenticated();
  if (route.access === "operate") {
    refuseNarrowed(principal);
    if (!principal.roles.includes("operator")) throw new BrokerError("forbidden", "Only an operator may do this.");
  } else {
    context.auth.allow(principal, route.access);
  }
  request.principal = principal;
}

function registerRoute(app: FastifyInstance, context: ApiContext, route: Route): void {
  const { queryLimitBytes, inboundLimitBytes } = context.config;
  app.route({
    method: route.method,
    url: route.url,
    bodyLimit: route.carriesQuery ? queryLimitBytes : inboundLimitBytes,
    onRequest: (request) => admit(context, route, request),
    async handler(request, reply) {
      if (route.access === "public") return route.handle({ request, reply, context });
      const { principal } = request;
      if (principal === null) throw unauthenticated();
      return route.handle({ request, reply, context, principal });
    },
  });
}

/** The socket is a route like any other until it is upgraded: a bad header, ticket or query is refused in HTTP. */
function registerSocket(app: FastifyInstance, context: ApiContext): void {
  app.route({
    method: "GET",
    url: SOCKET_URL,
    async onRequest(request) {
      if (!request.ws) throw new BrokerError("bad_request", "This is the address of a WebSocket. Connect with one.");
      parseSocketQuery(request.query);
      request.principal = (await authenticate(context.auth, request, request.originKind, { for: "socket" })) ?? null;
    },
    handler: () => undefined,
    wsHandler: (ws, request) => acceptSocket(ws, request, context),
  });
}

/** A runner says who it is in its headers and query, before the upgrade: a key only, and one that may own agents. */
function registerRunnerSocket(app: FastifyInstance, context: ApiContext): void {
  app.route({
    method: "GET",
    url: RUNNER_URL,
    async onRequest(request) {
      if (!request.ws)
        throw new BrokerError("bad_request", "This is the address of a WebSocket for `patchbay runner`.");
      request.principal = await admitRunner(context, request);
    },
    handler: () => undefined,
    wsHandler: (ws, request) => acceptRunner(ws, request, context),
  });
}

export function registerRoutes(app: FastifyInstance, context: ApiContext): void {
  app.decorateRequest("principal", null);
  for (const route of ROUTES) registerRoute(app, context, route);
  registerSocket(app, context);
  registerRunnerSocket(app, context);
}
