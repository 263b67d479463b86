import Fastify from "fastify";
import { expect, test } from "vitest";
import { createAxonSql } from "../../../src/compat/runloop/sql/axon-sql.ts";
import { registerAxonSql } from "../../../src/compat/runloop/sql/routes.ts";
import { BrokerError, PROBLEMS, problemBody } from "../../../src/protocol/problems.ts";
import { callServer } from "../../kit/server.ts";
import { makeTempDir } from "../../kit/temp-dir.ts";

/** The two routes alone; the key is the tenant, and only the axon `known` exists. */
async function startRoutes() {
  const folder = makeTempDir();
  const sql = createAxonSql({ folder: folder.path });
  const app = Fastify();
  app.setErrorHandler((error, _request, reply) => {
    const body = problemBody(error);
    return reply.code(PROBLEMS[body.code].status).send(body);
  });
  registerAxonSql(app, {
    sql,
    async axonOf({ params, headers }, action) {
      expect(action).toBe("drive");
      const id = typeof params === "object" && params !== null && "id" in params ? String(params.id) : "";
      if (id !== "known") throw new BrokerError("not_found", "There is no axon with this id.");
      return { tenant: headers.authorization ?? "", id };
    },
  });
  const url = await app.listen({ host: "127.0.0.1", port: 0 });
  return {
    post: (path: string, body: unknown, key = "one") => callServer(url, "POST", `/v1/axons/${path}`, { body, key }),
    async [Symbol.asyncDispose]() {
      sql.close();
      await app.close();
      folder[Symbol.dispose]();
    },
  };
}

test("query and batch answer in Runloop's form, to whom the axon is there", async () => {
  await using server = await startRoutes();
  const made = await server.post("known/sql/query", { sql: "CREATE TABLE t (id INTEGER PRIMARY KEY, name TEXT)" });
  expect([made.status, made.body.rows, made.body.columns]).toEqual([200, [], []]);
  const statements = [
    { sql: "INSERT INTO t (name) VALUES (?)", params: ["a"] },
    { sql: "SELECT * FROM t WHERE id = ?", params: [1], newer_field: true },
  ];
  const batch = await server.post("known/sql/batch", { statements });
  expect(batch.status).toBe(200);
  expect(batch.body.results).toEqual([
    { success: { columns: [], rows: [], meta: expect.objectContaining({ changes: 1 }) } },
    {
      success: {
        columns: [
          { name: "id", type: "INTEGER" },
          { name: "name", type: "TEXT" },
        ],
        rows: [[1, "a"]],
        meta: { changes: 0, duration_ms: expect.any(Number), rows_read_limit_reached: false },
      },
    },
  ]);
  const failed = await server.post("known/sql/batch", { statements: [{ sql: "nonsense" }] });
  expect([failed.status, failed.body.results]).toEqual([
    200,
    [{ error: { message: 'near "nonsense": syntax error' } }],
  ]);
  expect((await server.post("known/sql/query", { sql: "SELECT * FROM t" }, "two")).body).toMatchObject({
    code: "sql_failed",
    message: "no such table: t. Correct the statement.",
  });
  expect((await server.post("other/sql/query", { sql: "SELECT 1" })).status).toBe(404);
});

test("what is no statement is a bad request that names the field", async () => {
  await using server = await startRoutes();
  for (const [path, body, field] of [
    ["query", {}, "sql"],
    ["query", { sql: 1 }, "sql"],
    ["query", { sql: "SELECT ?", params: [{}] }, "params.0"],
    ["batch", {}, "statements"],
    ["batch", { statements: [{}] }, "statements.0.sql"],
  ] as const) {
    const answer = await server.post(`known/sql/${path}`, body);
    expect([answer.status, answer.body.details?.field]).toEqual([400, field]);
  }
  expect((await server.post("known/sql/query", { sql: "SELECT 1", params: null })).body.rows).toEqual([[1]]);
});
