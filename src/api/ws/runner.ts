import type { FastifyRequest } from "fastify";
import { createWebSocketStream, type WebSocket } from "ws";
import type { Principal } from "../../auth/port.ts";
import { parseRunnerQuery } from "../../protocol/http.schema.ts";
import { BrokerError, PROBLEMS } from "../../protocol/problems.ts";
import { type ApiContext, type DialledIn, refuseNarrowed } from "../context.ts";
import { authenticate } from "../credentials.ts";

/** How long a runner that is sent away gets for the closing handshake, in milliseconds. */
const CLOSE_PATIENCE_MS = 1000;

function identityOf({ tenant }: Principal, request: FastifyRequest): DialledIn {
  const { name, instance, process, label } = parseRunnerQuery(request.query);
  return { tenant, name, instance, process, labels: label };
}

/** Who dials in. Cookies and tickets are no way in. @throws BrokerError unauthenticated, expired, forbidden, bad_request, runner_in_use */
export async function admitRunner(context: ApiContext, request: FastifyRequest): Promise<Principal> {
  if (request.headers.authorization === undefined) {
    throw new BrokerError(
      "unauthenticated",
      "A runner says who it is with a key: give `patchbay runner` a --token-file.",
    );
  }
  const principal = await authenticate(context.auth, request, request.originKind, undefined);
  if (principal === undefined) throw new BrokerError("unauthenticated", "That is no key.");
  refuseNarrowed(principal);
  context.auth.allow(principal, "host");
  context.runners.refuseSecond(identityOf(principal, request));
  return principal;
}

/** Hands the socket's bytes to the agents' room; revocation, expiry and draining end it like any other connection. */
export function acceptRunner(ws: WebSocket, request: FastifyRequest, context: ApiContext): void {
  const { principal } = request;
  const { promise: closed, resolve } = Promise.withResolvers<void>();
  ws.once("close", () => resolve());
  const close = ({ code, message }: BrokerError): void => {
    // ws takes 123 bytes.
    ws.close(
      PROBLEMS[code].close,
      Buffer.from(`${code}: ${message}`)
        .subarray(0, 123)
        .toString("utf8")
        .replace(/\uFFFD+$/, ""),
    );
    setTimeout(() => ws.terminate(), CLOSE_PATIENCE_MS).unref();
  };
  context.live.add({ kind: "runner", principal: () => principal ?? undefined, close, closed });
  if (principal === null) return ws.terminate();
  // Its key may have been revoked while the upgrade was under way: from here on `live` sees to that.
  authenticate(context.auth, request, request.originKind, undefined).catch((error: unknown) =>
    close(error instanceof BrokerError ? error : new BrokerError("internal", "Try again.", { cause: error })),
  );
  const identity = identityOf(principal, request);
  const fields = { tenant: identity.tenant, runner: identity.name };
  try {
    context.runners.accept(identity, createWebSocketStream(ws));
    request.log.info(fields, "runner.linked");
    void closed.then(() => request.log.info(fields, "runner.unlinked"));
  } catch (error) {
    close(error instanceof BrokerError ? error : new BrokerError("internal", "Try again.", { cause: error }));
  }
}
