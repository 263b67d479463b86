import type { FastifyInstance } from "fastify";
import { BrokerError } from "../../protocol/problems.ts";
import { AXON_ROUTES } from "./axons.ts";
import { findAxon, pathId, type RunloopContext, type RunloopRoute, refuseNarrowed } from "./call.ts";
import { createCreator } from "./devbox/create.ts";
import { createDevboxes } from "./devbox/devboxes.ts";
import { DEVBOX_ROUTES, notServed } from "./devbox/routes.ts";
import { RUNLOOP_DEFAULTS, type RunloopHost, type RunloopParts } from "./port.ts";
import { sendProblem } from "./problems.ts";
import { registerSecrets } from "./secrets/routes.ts";
import { registerAxonSql } from "./sql/routes.ts";

/** Every route of this dialect but those that are answered with 501. */
export const RUNLOOP_ROUTES: readonly RunloopRoute[] = [...AXON_ROUTES, ...DEVBOX_ROUTES];

/** Runloop's API (axons and devboxes) on top of sessions: its official clients need another base URL and another token only. */
export interface Runloop {
  /** Registers its routes in a scope of their own. */
  register(scope: FastifyInstance, host: RunloopHost): void;
  close(): void;
}

function registerRoute(scope: FastifyInstance, context: RunloopContext, route: RunloopRoute): void {
  const { method, url, access, carriesPayload, handle } = route;
  const { host } = context;
  const { queryLimitBytes } = host.config;
  scope.route({
    method,
    url,
    ...(carriesPayload && { bodyLimit: queryLimitBytes }),
    // Before the body is read: who may not call does not get to send it.
    async onRequest(request) {
      await host.admit(request, access);
    },
    async handler(request, reply) {
      const { principal } = request;
      if (principal === null) throw new BrokerError("unauthenticated", "Say who you are.");
      return handle({ request, reply, principal, context });
    },
  });
}

export async function createRunloop(parts: RunloopParts): Promise<Runloop> {
  const options = { ...RUNLOOP_DEFAULTS, ...parts.options };
  const { auth, sessions, sql, secrets, database, report } = parts;
  const devboxes = await createDevboxes({ sessions, database, options, report });
  const createDevbox = createCreator();
  return {
    register(scope, host) {
      const context: RunloopContext = { auth, sessions, devboxes, createDevbox, options, host, sql, secrets };
      scope.setErrorHandler((error, request, reply) => {
        if (!(error instanceof BrokerError) || error.code === "internal") {
          request.log.error({ err: error, route: request.routeOptions.url }, "request failed");
        }
        return sendProblem(reply, error);
      });
      for (const route of RUNLOOP_ROUTES) registerRoute(scope, context, route);
      registerAxonSql(scope, {
        sql,
        axonOf: async (request, action) => findAxon(context, await host.admit(request, action), pathId(request)),
      });
      registerSecrets(scope, {
        secrets,
        async admit(request, action) {
          const principal = await host.admit(request, action);
          refuseNarrowed(principal);
          return { tenant: principal.tenant, actor: host.actorOf(request, principal) };
        },
      });
      for (const method of ["GET", "POST", "DELETE"] as const) {
        registerRoute(scope, context, {
          method: method as RunloopRoute["method"],
          url: "/v1/devboxes/:id/*",
          access: "read",
          carriesPayload: true,
          handle: notServed,
        });
      }
    },
    close() {
      devboxes.close();
      sql.close();
    },
  };
}
