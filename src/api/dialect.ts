import type { FastifyInstance, FastifyRequest } from "fastify";
import type { Principal } from "../auth/port.ts";
import { BrokerError } from "../protocol/problems.ts";
import type { Action } from "../protocol/roles.ts";
import type { Actor } from "../sessions/port.ts";
import { actorOf } from "./actor.ts";
import type { ApiConfig } from "./config.ts";
import type { ApiContext } from "./context.ts";
import { authenticate } from "./credentials.ts";

/** What the server lends to a foreign dialect: its gate, its keys, its list of open streams. */
export interface DialectHost {
  /** Who asks, if they may do this; before the body is read. @throws BrokerError unauthenticated, expired, rate_limited, forbidden */
  admit(request: FastifyRequest, action: Action): Promise<Principal>;
  /** The same, as events and the audit record know them. */
  actorOf(request: FastifyRequest, principal: Principal): Actor;
  readonly live: Pick<ApiContext["live"], "add" | "draining">;
  readonly config: Pick<ApiConfig, "queryLimitBytes" | "slowReaderMs" | "commentMs" | "inFlightBytes">;
  eventsSent(count: number): void;
}

/** Routes of somebody else's API, served beside ours: in a scope of their own, so that their failures have their own form. */
export interface Dialect {
  register(scope: FastifyInstance, host: DialectHost): void;
}

function hostOf(context: ApiContext): DialectHost {
  return {
    async admit(request, action) {
      const principal = await authenticate(context.auth, request, request.originKind, undefined);
      if (principal === undefined) {
        throw new BrokerError("unauthenticated", "Say who you are: Authorization: Bearer <key>.");
      }
      context.auth.allow(principal, action);
      request.principal = principal;
      return principal;
    },
    actorOf: (request, principal) => actorOf({ request, principal }),
    live: context.live,
    config: context.config,
    eventsSent: (count) => context.metrics.eventsSent("sse", count),
  };
}

export async function registerDialects(
  app: FastifyInstance,
  context: ApiContext,
  dialects: readonly Dialect[],
): Promise<void> {
  const host = hostOf(context);
  for (const dialect of dialects) await app.register(async (scope) => dialect.register(scope, host));
}
