import type { FastifyReply } from "fastify";
import { BrokerError, PROBLEMS, problemBody } from "../../protocol/problems.ts";

/** Fastify's own failures that a caller can bring about, by their HTTP status. */
const ofStatus = (status: unknown): BrokerError | undefined => {
  if (status === 413) return new BrokerError("too_large", "The body is over its limit. Send less.");
  if (status === 415) return new BrokerError("unsupported_media_type", "Send the body as application/json.");
  if (typeof status !== "number" || status < 400 || status >= 500) return undefined;
  return new BrokerError("bad_request", "The request is malformed. Send valid HTTP with a JSON body.");
};

/** Whatever was thrown, as a failure of our table where it is the caller's. */
function asProblem(error: unknown): unknown {
  if (error instanceof BrokerError || typeof error !== "object" || error === null) return error;
  return ("statusCode" in error ? ofStatus(error.statusCode) : undefined) ?? error;
}

/**
 * When a client that met a server on its way out tries again. The HTTP/2 pool of Runloop's clients (1.25 and newer) forgets a request that
 * it makes while nobody listens, until another one comes (spec 1.1): so not before the next server is there, as a rule.
 */
const RESTART_MS = 10_000;

/**
 * A failure in the form that Runloop's clients read: `message` at the top becomes the error's text. They try 408, 409, 429 and everything
 * from 500 on again by themselves, unless told otherwise.
 */
export function sendProblem(reply: FastifyReply, error: unknown): FastifyReply {
  const body = problemBody(asProblem(error));
  const retryAfter = body.details?.["retry_after_s"];
  if (typeof retryAfter === "number") reply.header("retry-after", retryAfter);
  if (body.code === "draining") reply.header("retry-after-ms", RESTART_MS);
  // Fastify says so with a body over its limit; in HTTP/2 there is no such header.
  if (reply.request.raw.httpVersionMajor >= 2) reply.removeHeader("connection");
  return reply
    .code(PROBLEMS[body.code].status)
    .header("x-should-retry", String(body.retry))
    .type("application/json")
    .send(body);
}
