import Fastify from "fastify";
import { expect, test } from "vitest";
import { createSecrets } from "../../../src/auth/secrets.ts";
import { registerSecrets } from "../../../src/compat/runloop/secrets/routes.ts";
import { PROBLEMS, problemBody } from "../../../src/protocol/problems.ts";
import { openMemoryStore } from "../../../src/store/memory.ts";
import { TEST_SEALER } from "../../kit/sealer.ts";
import { callServer } from "../../kit/server.ts";

/** The routes alone; the key is the tenant. */
async function startRoutes() {
  const store = openMemoryStore();
  const secrets = await createSecrets({ store, sealer: TEST_SEALER });
  const app = Fastify();
  const asked: string[] = [];
  app.setErrorHandler((error, _request, reply) => {
    const body = problemBody(error);
    return reply.code(PROBLEMS[body.code].status).send(body);
  });
  registerSecrets(app, {
    secrets,
    async admit({ headers, method, routeOptions }, action) {
      asked.push(`${method} ${routeOptions.url} ${action}`);
      return { tenant: headers.authorization ?? "", actor: { id: "key_1" } };
    },
  });
  const url = await app.listen({ host: "127.0.0.1", port: 0 });
  return {
    asked,
    secrets,
    call: (method: string, path: string, body?: unknown, key = "one") =>
      callServer(url, method, `/v1/secrets${path}`, { key, ...(body !== undefined && { body }) }),
    async [Symbol.asyncDispose]() {
      await app.close();
      await store.close();
    },
  };
}

test("create, retrieve, update, list and delete answer in Runloop's form, and no answer has the value", async () => {
  await using server = await startRoutes();
  const made = await server.call("POST", "", { name: "DATABASE_PASSWORD", value: "a very secret value" });
  expect(made.status).toBe(200);
  expect(Object.keys(made.body).toSorted()).toEqual(["create_time_ms", "id", "name", "update_time_ms"]);
  await server.call("POST", "", { name: "OTHER", value: "a very secret value" });
  const list = await server.call("GET", "?limit=1");
  expect(list.body).toEqual({ secrets: [made.body], has_more: true, total_count: 2 });
  const updated = await server.call("POST", "/DATABASE_PASSWORD", { value: "a very secret value too" });
  expect(updated.body).toMatchObject({ id: made.body.id, create_time_ms: made.body.create_time_ms });
  expect((await server.call("GET", "/DATABASE_PASSWORD")).body).toEqual(updated.body);
  expect(await server.secrets.valueOf("Bearer one", "DATABASE_PASSWORD")).toBe("a very secret value too");
  const removed = await server.call("POST", "/DATABASE_PASSWORD/delete", {});
  expect(removed.body).toEqual(updated.body);
  for (const { text } of [made, list, updated, removed]) expect(text).not.toContain("very secret");
  expect((await server.call("GET", "/DATABASE_PASSWORD")).status).toBe(404);
  expect((await server.call("GET", "", undefined, "two")).body).toEqual({
    secrets: [],
    has_more: false,
    total_count: 0,
  });
  expect(new Set(server.asked)).toEqual(
    new Set([
      "POST /v1/secrets administer",
      "GET /v1/secrets drive",
      "GET /v1/secrets/:name drive",
      "POST /v1/secrets/:name administer",
      "POST /v1/secrets/:name/delete administer",
    ]),
  );
});

test("names and values that no variable could have are refused by field, and never repeated in the answer", async () => {
  await using server = await startRoutes();
  for (const [body, field] of [
    [{}, "name"],
    [{ name: "A" }, "value"],
    [{ name: "", value: "x" }, "name"],
    [{ name: "1A", value: "x" }, "name"],
    [{ name: "A-B", value: "x" }, "name"],
    [{ name: "A".repeat(201), value: "x" }, "name"],
    [{ name: "A", value: "" }, "value"],
    [{ name: "A", value: 1 }, "value"],
    [{ name: "A", value: "hidden\0words" }, "value"],
    [{ name: "A", value: "ä".repeat(33_000) }, "value"],
  ] as const) {
    const answer = await server.call("POST", "", body);
    expect([answer.status, answer.body.details?.field]).toEqual([400, field]);
    expect(answer.text).not.toMatch(/hidden|ää/);
  }
  expect((await server.call("GET", "?limit=0")).status).toBe(400);
  expect((await server.call("POST", "/NOBODY", { value: "x" })).status).toBe(404);
  expect((await server.call("POST", "/NOBODY/delete")).status).toBe(404);
});
