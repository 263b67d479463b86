import type { Socket } from "node:net";
import type { FastifyInstance, FastifyReply } from "fastify";
import { BrokerError, PROBLEMS, type ProblemCode, problemBody } from "../protocol/problems.ts";

/** Fastify's own failures in the words of our table. */
const FASTIFY_CODES: Readonly<Record<string, readonly [ProblemCode, string]>> = {
  FST_ERR_CTP_BODY_TOO_LARGE: ["too_large", "The body is over its limit. Send less."],
  FST_ERR_CTP_INVALID_MEDIA_TYPE: ["unsupported_media_type", "Send the body as application/json."],
  FST_ERR_BAD_URL: ["bad_request", "The path is not a valid URL. Correct it."],
  FST_ERR_NOT_FOUND: ["not_found", "There is no such route."],
};

/** Whatever was thrown, as a failure of our table where it is one of the caller's. */
export function asProblem(error: unknown): unknown {
  if (error instanceof BrokerError || !(error instanceof Error)) return error;
  const known = "code" in error && typeof error.code === "string" ? FASTIFY_CODES[error.code] : undefined;
  if (known !== undefined) return new BrokerError(known[0], known[1], { cause: error });
  const status = "statusCode" in error && typeof error.statusCode === "number" ? error.statusCode : 500;
  if (status === 413) return new BrokerError("too_large", "The body is over its limit. Send less.", { cause: error });
  if (status < 400 || status >= 500) return error;
  return new BrokerError("bad_request", "The request is malformed. Send valid HTTP with a JSON body.", {
    cause: error,
    details: { field: "body" },
  });
}

/** The HTTP form of a failure. */
export function sendProblem(reply: FastifyReply, error: unknown): FastifyReply {
  const body = problemBody(error);
  const retryAfter = body.details?.["retry_after_s"];
  if (typeof retryAfter === "number") reply.header("retry-after", retryAfter);
  if (PROBLEMS[body.code].status === 401) reply.header("www-authenticate", "Bearer");
  // Fastify says so with a body over its limit; in HTTP/2 there is no such header.
  if (reply.request.raw.httpVersionMajor >= 2) reply.removeHeader("connection");
  return reply.code(PROBLEMS[body.code].status).type("application/json").send({ error: body });
}

/** Routes every failure of the app through one table. */
export function handleErrors(app: FastifyInstance): void {
  app.setErrorHandler((error, request, reply) => {
    const problem = asProblem(error);
    if (!(problem instanceof BrokerError) || problem.code === "internal") {
      request.log.error({ err: error, route: request.routeOptions.url }, "request failed");
    }
    return sendProblem(reply, problem);
  });
  app.setNotFoundHandler((_request, reply) =>
    sendProblem(reply, new BrokerError("not_found", "There is no such route.")),
  );
}

/** Answers what is not HTTP at all in the same form. */
export function refuseBadHttp(error: NodeJS.ErrnoException, socket: Socket): void {
  if (error.code === "ECONNRESET" || !socket.writable) return void socket.destroy();
  const [status, reason] =
    error.code === "HPE_HEADER_OVERFLOW" ? [431, "Request Header Fields Too Large"] : [400, "Bad Request"];
  const problem = new BrokerError("bad_request", "The request is not valid HTTP. Correct it and send again.");
  const body = JSON.stringify({ error: problemBody(problem) });
  socket.end(
    `HTTP/1.1 ${status} ${reason}\r\nContent-Type: application/json\r\nContent-Length: ${Buffer.byteLength(body)}\r\nConnection: close\r\n\r\n${body}`,
  );
}
