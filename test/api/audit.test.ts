import { createHash, randomUUID } from "node:crypto";
import { once } from "node:events";
import { createConnection, type Socket } from "node:net";
import type { FastifyInstance } from "fastify";
import { pino } from "pino";
import { expect, test } from "vitest";
import { createDialledRunners } from "../../src/agents/runner/dialled-runners.ts";
import { createApi } from "../../src/api/server.ts";
import { createAuth } from "../../src/auth/auth.ts";
import { createPolicies } from "../../src/auth/policy/policies.ts";
import { isJsonObject } from "../../src/protocol/json.ts";
import { openMemoryStore } from "../../src/store/memory.ts";
import { createWebhooks } from "../../src/webhooks/webhooks.ts";
import { payloadField } from "../kit/payload-field.ts";
import { TEST_SEALER } from "../kit/sealer.ts";
import { ADMIN_KEY, type Answer, startServer, type TestServer } from "../kit/server.ts";
import { openSessionHost } from "../kit/session-host.ts";
import { verifies } from "../kit/verifies.ts";

// biome-ignore lint/suspicious/noExplicitAny: a test reads whatever shape it asserts
const entriesOf = ({ body }: Answer): any[] => body.entries;
const audit = async (server: TestServer, query = "", key?: string) =>
  server.call("GET", `/v1/audit${query}`, key === undefined ? {} : { key });

verifies("AUDIT", "an admin reads his own tenant's record, an operator every one, nobody else any", async () => {
  await using server = await startServer();
  const admin = await server.key(["admin"], "acme");
  const own = await server.call("POST", "/v1/keys", { key: admin.key, body: { name: "ours" } });
  await server.call("POST", "/v1/tickets", { key: own.body.key, body: { roles: ["viewer"] } });
  const seen = entriesOf(await audit(server, "", admin.key));
  expect(seen.map(({ kind, tenant, actor }) => [kind, tenant, actor.id])).toEqual([
    ["key", "acme", "testadmin"],
    ["key", "acme", admin.id],
    ["ticket", "acme", own.body.id],
  ]);
  expect(seen[1]).toMatchObject({
    actor: { id: admin.id, roles: ["admin"], address: "127.0.0.1", via: "http" },
    subtype: "create",
    decision: { key_id: own.body.id, name: "ours", roles: ["driver", "approver"] },
    outcome: "created",
    at_ms: expect.any(Number),
  });
  const all = entriesOf(await audit(server));
  expect(new Set(all.map(({ tenant }) => tenant))).toEqual(new Set(["default", "acme"]));
  expect(entriesOf(await audit(server, "?tenant=acme"))).toEqual(seen);
  expect((await audit(server, "?tenant=default", admin.key)).status).toBe(403);
  expect((await audit(server, "", own.body.key)).status).toBe(403);
  expect(JSON.stringify(all)).not.toContain(own.body.key.split("_").slice(2).join("_"));
});

/** A permission of a new session, answered by this client of it. */
async function answerOne(
  server: TestServer,
  sessionId: string,
  key: string,
): Promise<{ requestId: string; input: unknown }> {
  using client = await server.socket({ key, query: `?session=${sessionId}` });
  await client.command({ id: randomUUID(), session_id: sessionId, event_type: "query", payload: { text: "!ask" } });
  const opened = await client.next("event", (frame) => frame.event_type === "request.opened");
  const requestId = String(payloadField(opened, "request_id"));
  const request = payloadField(opened, "request");
  const response = { subtype: "success", request_id: requestId, response: { behavior: "allow" } };
  const payload = { type: "control_response", response };
  const ack = await client.command({
    id: randomUUID(),
    session_id: sessionId,
    event_type: "control_response",
    payload,
  });
  expect(ack).toMatchObject({ type: "ack" });
  await client.next("event", (frame) => frame.event_type === "turn.completed");
  return { requestId, input: isJsonObject(request) ? request.input : undefined };
}

verifies("AUDIT", "an answer's row says who, from where, with what roles, and exactly what was shown", async () => {
  await using server = await startServer();
  const { id } = await server.session();
  const made = await server.call("POST", "/v1/keys", { body: {} });
  const { requestId, input } = await answerOne(server, id, made.body.key);
  const shown = JSON.stringify(input);
  const rows = entriesOf(await audit(server, `?kind=answer&session_id=${id}`));
  expect(rows).toEqual([
    {
      id: expect.any(Number),
      at_ms: expect.any(Number),
      kind: "answer",
      tenant: "default",
      session_id: id,
      actor: {
        id: made.body.id,
        roles: ["driver", "approver"],
        address: "127.0.0.1",
        connection_id: expect.any(String),
        via: "ws",
      },
      request_id: requestId,
      tool_name: expect.any(String),
      subtype: "can_use_tool",
      shown,
      shown_bytes: Buffer.byteLength(shown),
      shown_sha256: createHash("sha256").update(shown).digest("hex"),
      decision: expect.objectContaining({ behavior: "allow" }),
      outcome: "answered",
      seq: expect.any(Number),
    },
  ]);
  const events = await server.call("GET", `/v1/sessions/${id}/events?event_type=control_response`);
  expect(events.body.events.map(({ seq }: { seq: number }) => seq)).toContain(rows[0].seq);
});

verifies(
  "AUDIT",
  "making, changing and purging a session are on record, with who did it and without what is secret",
  async () => {
    await using server = await startServer();
    const agent = { env: { MY_TOKEN: "s3cret" }, mcp_servers: { a: { command: "a", env: { K: "s3cret" } } } };
    const { id } = await server.session({ name: "first", agent });
    await server.call("PATCH", `/v1/sessions/${id}`, { body: { name: "second" } });
    await server.call("POST", "/v1/tickets", { body: { session_id: id } });
    await answerOne(server, id, server.adminKey);
    expect((await server.call("DELETE", `/v1/sessions/${id}?purge=true`)).status).toBe(204);
    expect((await server.call("GET", `/v1/sessions/${id}`)).status).toBe(404);
    const left = entriesOf(await audit(server, `?session_id=${id}`));
    expect(left.map(({ kind, subtype, actor }) => [kind, subtype, actor.id])).toEqual([
      ["session", "create", "testadmin"],
      ["session", "update", "testadmin"],
      ["ticket", "create", "testadmin"],
      ["answer", "can_use_tool", "testadmin"],
      ["session", "purge", "testadmin"],
    ]);
    expect(left[0]?.decision).toEqual({ name: "first", agent: { env: ["MY_TOKEN"], mcp_servers: ["a"] } });
    expect(left[1]?.decision).toEqual({ name: "second" });
    expect(JSON.stringify(left)).not.toContain("s3cret");
  },
);

verifies("AUDIT", "pages, filters and JSON lines tell the same, in the same order", async () => {
  await using server = await startServer();
  const admin = await server.key(["admin"], "acme");
  for (let made = 0; made < 230; made += 1) {
    await server.call("POST", "/v1/tickets", { key: admin.key, body: { roles: ["viewer"] } });
  }
  const paged: { id: number }[] = [];
  for (let after = 0, last = false; !last; ) {
    const { body } = await audit(server, `?kind=ticket&limit=100&after=${after}`, admin.key);
    paged.push(...body.entries);
    last = body.entries.length < 100;
    after = body.next;
  }
  expect(paged).toHaveLength(230);
  expect(paged.map(({ id }) => id)).toEqual(paged.map(({ id }) => id).toSorted((a, b) => a - b));
  const lines = await server.call("GET", "/v1/audit?kind=ticket", {
    key: admin.key,
    headers: { accept: "application/x-ndjson" },
  });
  expect(lines.headers.get("content-type")).toBe("application/x-ndjson");
  expect(lines.text.endsWith("\n")).toBe(true);
  expect(
    lines.text
      .trim()
      .split("\n")
      .map((line) => JSON.parse(line)),
  ).toEqual(paged);
  const last = paged.at(-1);
  expect(entriesOf(await audit(server, `?after=${last?.id ?? 0}`, admin.key))).toEqual([]);
  expect(entriesOf(await audit(server, `?since=${Date.now() + 60_000}`))).toEqual([]);
  expect(entriesOf(await audit(server, "?actor=server"))).not.toEqual([]);
  for (const [query, field] of [
    ["?limit=201", "limit"],
    ["?kind=gossip", "kind"],
    ["?after=head", "after"],
    ["?since=yesterday", "since"],
    ["?who=me", "who"],
  ] as const) {
    const refused = await audit(server, query);
    expect({ query, status: refused.status, field: refused.body.error.details.field }).toEqual({
      query,
      status: 400,
      field,
    });
  }
  const whole = await server.call("GET", "/v1/audit?limit=5", { headers: { accept: "application/x-ndjson" } });
  expect(whole.status).toBe(400);
});

/** A client that asks for everything and reads none of it; `closed`: the server has let go of it. */
async function askAndStall(
  { server }: FastifyInstance,
  port: number,
): Promise<{ readonly closed: Promise<void> } & Disposable> {
  const accepted: Promise<Socket[]> = once(server, "connection");
  const socket = createConnection({ host: "127.0.0.1", port });
  socket.on("error", () => undefined);
  const [served] = await accepted;
  if (served === undefined) throw new Error("no connection");
  const closed = once(served, "close").then(() => undefined);
  const head = ["GET /v1/audit HTTP/1.1", "Host: 127.0.0.1", `Authorization: Bearer ${ADMIN_KEY}`];
  socket.write(`${[...head, "Accept: application/x-ndjson"].join("\r\n")}\r\n\r\n`);
  await once(socket, "readable");
  return { closed, [Symbol.dispose]: () => void socket.destroy() };
}

test("an export that nobody reads ends by itself, and holds up no shutdown", async () => {
  await using host = await openSessionHost();
  await using store = { ...openMemoryStore(), [Symbol.asyncDispose]: () => store.close() };
  const auth = await createAuth({ store, adminKey: ADMIN_KEY });
  const shown = "x".repeat(64 * 1024);
  const entry = { kind: "answer", tenant: "default", actor: { id: "k" }, outcome: "answered", shown } as const;
  await Promise.all(Array.from({ length: 400 }, () => auth.record(entry)));
  const policies = await createPolicies(store);
  const ready = async () => ({ ok: true, checks: {} });
  const start = async (slowReaderMs: number) => {
    const config = { version: "0", ready, slowReaderMs };
    const webhooks = await createWebhooks({ store, sealer: TEST_SEALER, report: () => undefined });
    const runners = createDialledRunners({ epoch: 1, broker: "test", known: [], save() {}, report() {} });
    const logger = pino({ level: "silent" });
    const parts = { auth, sessions: host.sessions, policies, webhooks, runners, config, logger };
    const app = await createApi(parts);
    const url = new URL(await app.listen({ host: "127.0.0.1", port: 0 }));
    return { app, port: Number(url.port) };
  };
  const impatient = await start(300);
  using slow = await askAndStall(impatient.app, impatient.port);
  await slow.closed;
  await impatient.app.close();
  const patient = await start(60_000);
  using stalled = await askAndStall(patient.app, patient.port);
  const begun = performance.now();
  await patient.app.close();
  await stalled.closed;
  expect(performance.now() - begun).toBeLessThan(5_000);
}, 30_000);
