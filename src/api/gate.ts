import type { FastifyInstance, FastifyReply, FastifyRequest } from "fastify";
import { BrokerError } from "../protocol/problems.ts";
import { authorityOf } from "../transport/http-server.ts";
import type { ApiConfig } from "./config.ts";
import { drainingProblem, type Live } from "./live.ts";
import { classifyOrigin, isOurHost, type OriginKind } from "./origin.ts";

declare module "fastify" {
  interface FastifyRequest {
    /** Whose page sent it; set before anything else looks at the request. */
    originKind: OriginKind;
  }
}

const PREFLIGHT_HEADERS = {
  "access-control-allow-methods": "GET, POST, PUT, PATCH, DELETE",
  "access-control-allow-headers": "authorization, content-type, idempotency-key, last-event-id",
  "access-control-max-age": "600",
};
const SOCKETS = ["/v1/ws", "/v1/runner"];
/** Answered even while the server drains. */
const ALWAYS_OPEN = ["/healthz", "/readyz", "/metrics"];

/** Host and Origin of every request, upgrade and stream, before authentication. @throws BrokerError host_refused, origin_refused */
function judge(request: FastifyRequest, config: ApiConfig): OriginKind {
  const host = authorityOf(request.raw);
  if (host === undefined || !isOurHost(host, config.allowedHosts)) {
    throw new BrokerError(
      "host_refused",
      "This server does not answer to that Host. List it in PATCHBAY_ALLOWED_HOSTS.",
    );
  }
  const { origin } = request.headers;
  const { localPort } = request.socket;
  const { tls, allowedOrigins } = config;
  const kind = classifyOrigin({ origin, host, localPort, tls: tls !== undefined, allowedOrigins });
  if (kind === "refused") {
    throw new BrokerError("origin_refused", "Pages of that Origin may not call. List it in PATCHBAY_ALLOWED_ORIGINS.");
  }
  return kind;
}

function answerCors(request: FastifyRequest, reply: FastifyReply): FastifyReply | undefined {
  const { origin } = request.headers;
  if (origin !== undefined) {
    reply.header("access-control-allow-origin", origin).header("access-control-expose-headers", "retry-after");
  }
  const isPreflight = request.method === "OPTIONS" && request.headers["access-control-request-method"] !== undefined;
  return isPreflight ? reply.code(204).headers(PREFLIGHT_HEADERS).send() : undefined;
}

/** Stands before all routes: cross-site pages and rebound names get nowhere, whatever they carry (known-bug 1). */
export function installGate(app: FastifyInstance, config: ApiConfig, live: Live): void {
  app.decorateRequest("originKind", "refused");
  app.addHook("onRequest", async (request, reply) => {
    reply.headers({
      "x-content-type-options": "nosniff",
      "referrer-policy": "no-referrer",
      "cache-control": "no-store",
    });
    reply.header("vary", "origin");
    request.originKind = judge(request, config);
    const answered = answerCors(request, reply);
    if (answered !== undefined) return answered;
    const path = request.routeOptions.url ?? "";
    if (request.ws && !SOCKETS.includes(path)) throw new BrokerError("not_found", "WebSockets are served at /v1/ws.");
    if (live.draining.aborted && !ALWAYS_OPEN.includes(path)) throw drainingProblem();
  });
}
