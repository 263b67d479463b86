import Fastify from "fastify";
import { expect, test } from "vitest";
import { parse } from "yaml";
import { listRoutes } from "../../src/api/routes.ts";
import { RUNLOOP_ROUTES } from "../../src/compat/runloop/runloop.ts";
import { registerSecrets } from "../../src/compat/runloop/secrets/routes.ts";
import { registerAxonSql } from "../../src/compat/runloop/sql/routes.ts";
import { readText } from "../kit/sources.ts";

interface Route {
  readonly method: string;
  readonly url: string;
}

const METHODS = ["get", "put", "post", "delete", "patch"];

/** `GET /v1/sessions/{id}` for a Fastify route. HEAD and OPTIONS come with the framework and are not part of the surface. */
function servedOperations(routes: readonly Route[]): string[] {
  const served = routes.filter(({ method }) => METHODS.includes(method.toLowerCase()));
  return [
    ...new Set(served.map(({ method, url }) => `${method.toUpperCase()} ${url.replace(/:(\w+)/g, "{$1}")}`)),
  ].sort();
}

/** The same for each operation of an OpenAPI document. */
function describedOperations(document: { paths?: Record<string, Record<string, unknown>> }): string[] {
  const operations = Object.entries(document.paths ?? {}).flatMap(([path, item]) =>
    METHODS.filter((method) => method in item).map((method) => `${method.toUpperCase()} ${path}`),
  );
  return operations.sort();
}

/** The routes of Runloop's API. Those that answer 501 to whatever there is are no part of the surface. */
function runloopRoutes(): readonly Route[] {
  const registered: Route[] = [];
  const app = Fastify();
  app.addHook("onRoute", ({ method, url }) => {
    registered.push(...[method].flat().map((name) => ({ method: name, url })));
  });
  const never = (): never => expect.fail("routes are only listed");
  registerAxonSql(app, { sql: { query: never, batch: never }, axonOf: never });
  registerSecrets(app, {
    secrets: { create: never, update: never, remove: never, read: never, list: never },
    admit: never,
  });
  return [...RUNLOOP_ROUTES, ...registered];
}

test("every route that is served is in openapi.yaml, and the other way round", async () => {
  const text = readText("openapi.yaml");
  if (text === undefined) expect.fail("openapi.yaml does not exist; it describes every route");
  const served = servedOperations([...(await listRoutes()), ...runloopRoutes()]);
  const described = describedOperations(parse(text));
  expect(served.length).toBeGreaterThan(0);
  expect({ served_but_not_described: served.filter((route) => !described.includes(route)) }).toEqual({
    served_but_not_described: [],
  });
  expect({ described_but_not_served: described.filter((route) => !served.includes(route)) }).toEqual({
    described_but_not_served: [],
  });
});

test("routes are compared in one spelling", () => {
  const routes = [
    { method: "GET", url: "/v1/sessions/:id/events" },
    { method: "HEAD", url: "/v1/sessions/:id/events" },
    { method: "POST", url: "/v1/sessions" },
  ];
  const document = { paths: { "/v1/sessions/{id}/events": { get: {}, parameters: [] }, "/v1/sessions": { post: {} } } };
  expect(servedOperations(routes)).toEqual(["GET /v1/sessions/{id}/events", "POST /v1/sessions"]);
  expect(describedOperations(document)).toEqual(servedOperations(routes));
});
