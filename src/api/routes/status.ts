import type { FastifyReply } from "fastify";
import type { ApiContext, Call, Route } from "../context.ts";

async function ready(context: ApiContext, reply: FastifyReply): Promise<unknown> {
  if (context.live.draining.aborted) {
    return reply
      .code(503)
      .send({ ok: false, checks: { draining: { ok: false, message: "The server is shutting down." } } });
  }
  const readiness = await context.config.ready();
  return reply.code(readiness.ok ? 200 : 503).send(readiness);
}

async function metrics({ context, reply }: Call): Promise<unknown> {
  const { body, contentType } = await context.metrics.text();
  return reply.type(contentType).send(body);
}

export const STATUS_ROUTES: readonly Route[] = [
  {
    method: "GET",
    url: "/healthz",
    access: "public",
    handle: ({ context }) => ({ ok: true, version: context.config.version }),
  },
  { method: "GET", url: "/readyz", access: "public", handle: ({ context, reply }) => ready(context, reply) },
  { method: "GET", url: "/metrics", access: "operate", handle: metrics },
];
