import websocket from "@fastify/websocket";
import Fastify, { type FastifyInstance, type FastifyServerOptions, LogController } from "fastify";
import type { Logger } from "pino";
import type { Policies } from "../auth/policy/policies.ts";
import type { Auth } from "../auth/port.ts";
import { RUNNER_SUBPROTOCOL, SUBPROTOCOL } from "../protocol/frames.ts";
import type { Sessions } from "../sessions/port.ts";
import { createBothVersions, HTTP_SERVER_DEFAULTS } from "../transport/http-server.ts";
import type { Webhooks } from "../webhooks/port.ts";
import { API_DEFAULTS, type ApiConfig, type ApiOptions } from "./config.ts";
import type { ApiContext, RunnerDoor } from "./context.ts";
import { type Dialect, registerDialects } from "./dialect.ts";
import { asProblem, handleErrors, refuseBadHttp, sendProblem } from "./errors.ts";
import { installGate } from "./gate.ts";
import { acceptJson } from "./json-body.ts";
import { createLive } from "./live.ts";
import { createMetrics } from "./metrics.ts";
import { createPageFiles } from "./page-assets.ts";
import { registerRoutes } from "./routes.ts";

/** Logged at debug level only: probes and page files. */
const QUIET = ["/healthz", "/readyz", "/metrics", "/", "/assets/:file"];

declare module "fastify" {
  interface FastifyInstance {
    /** Readiness off, sockets closed with `draining`, streams ended; resolves within the configured time. close() does it too. */
    drain(): Promise<void>;
  }
}

export interface ApiParts {
  readonly auth: Auth;
  readonly sessions: Sessions;
  readonly policies: Policies;
  readonly webhooks: Webhooks;
  readonly runners: RunnerDoor;
  readonly config: ApiOptions;
  readonly logger: Logger;
  readonly dialects?: readonly Dialect[];
}

async function registerWebSockets(app: FastifyInstance, config: ApiConfig, drain: () => Promise<void>): Promise<void> {
  await app.register(websocket, {
    options: {
      maxPayload: config.queryLimitBytes,
      perMessageDeflate: false,
      // Pongs wait for room in the socket; see transport/websocket.ts.
      autoPong: false,
      handleProtocols: (offered: ReadonlySet<string>) =>
        [SUBPROTOCOL, RUNNER_SUBPROTOCOL].find((name) => offered.has(name)) ?? false,
    },
    // ws has sent the close frame that fits (1009, 1007, 1002) by the time it reports; cutting the socket would lose it.
    errorHandler: (error, _socket, request) => request.log.debug({ err: error }, "socket error"),
    preClose(done) {
      drain().then(
        () => {
          // Whoever has not finished the handshake by now reads slowly, or has just come: nobody else's shutdown waits for them.
          for (const client of this.websocketServer.clients) client.terminate();
          this.websocketServer.close(() => done());
        },
        (error: unknown) => done(error instanceof Error ? error : new Error("drain failed", { cause: error })),
      );
    },
  });
}

/** Path patterns only: a query string may carry a ticket, and nothing of a header or body is logged. */
function logRequests(app: FastifyInstance, context: ApiContext): void {
  app.addHook("onResponse", (request, reply, done) => {
    const route = request.routeOptions.url ?? "none";
    const seconds = reply.elapsedTime / 1000;
    const fields = {
      method: request.method,
      route,
      status: reply.statusCode,
      duration_ms: Math.round(reply.elapsedTime),
    };
    const upgraded = request.ws && reply.statusCode < 400;
    if (!upgraded) context.metrics.http(request.method, route, reply.statusCode, seconds);
    if (QUIET.includes(route)) request.log.debug(fields, "request");
    else request.log.info(fields, upgraded ? "socket closed" : "request");
    done();
  });
}

function fastifyOptions({ inboundLimitBytes }: ApiConfig, logger: Logger): FastifyServerOptions {
  return {
    loggerInstance: logger,
    logController: new LogController({ disableRequestLogging: true }),
    bodyLimit: inboundLimitBytes,
    exposeHeadRoutes: false,
    // Who comes while the server drains is told so in our own words, by the gate.
    return503OnClosing: false,
    routerOptions: { maxParamLength: 200 },
    clientErrorHandler: refuseBadHttp,
    frameworkErrors: (error, _request, reply) => void sendProblem(reply, asProblem(error)),
  };
}

/** The HTTP and WebSocket surface, not yet listening. close() drains it; agents and logs are its caller's to stop. */
export async function createApi({
  auth,
  sessions,
  policies,
  webhooks,
  runners,
  config: given,
  logger,
  dialects = [],
}: ApiParts): Promise<FastifyInstance> {
  const config: ApiConfig = { ...API_DEFAULTS, ...given };
  const http = createBothVersions({ ...HTTP_SERVER_DEFAULTS, tls: config.tls });
  const app = Fastify({ ...fastifyOptions(config, logger), serverFactory: http.serve });
  const live = createLive();
  const metrics = createMetrics(sessions, live);
  const page = createPageFiles();
  const context: ApiContext = {
    auth,
    sessions,
    policies,
    webhooks,
    runners,
    config,
    logger: app.log,
    live,
    metrics,
    page,
  };
  const stopListening = auth.onRevoked(live.revoke);
  const drain = (): Promise<void> => live.drain(config.drainMs);

  app.decorate("drain", drain);
  app.addHook("preClose", (done) => {
    http.retire();
    // A connection on which no request ever came counts as busy for Node, and would hold up the end for a minute. Runs beside the drain.
    setTimeout(http.cut, config.drainMs / 2).unref();
    done();
  });
  await registerWebSockets(app, config, drain);
  installGate(app, config, live);
  acceptJson(app);
  handleErrors(app);
  logRequests(app, context);
  registerRoutes(app, context);
  await registerDialects(app, context, dialects);
  app.addHook("onClose", async () => {
    stopListening();
    metrics.close();
  });
  return app;
}
