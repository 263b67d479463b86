import http from "node:http";
import { Writable } from "node:stream";
import { pino } from "pino";
import { expect, test } from "vitest";
import { createDialledRunners } from "../../src/agents/runner/dialled-runners.ts";
import { createApi } from "../../src/api/server.ts";
import { createAuth } from "../../src/auth/auth.ts";
import { createPolicies } from "../../src/auth/policy/policies.ts";
import { openMemoryStore } from "../../src/store/memory.ts";
import { createWebhooks } from "../../src/webhooks/webhooks.ts";
import { TEST_SEALER } from "../kit/sealer.ts";
import { ADMIN_KEY, type Answer, callServer, startServer } from "../kit/server.ts";
import { openSessionHost } from "../kit/session-host.ts";
import { openSse } from "../kit/sse-client.ts";
import { verifies } from "../kit/verifies.ts";
import { connect, UpgradeRefused } from "../kit/ws-client.ts";

const EVIL = "https://evil.example";

/** fetch does not let a program choose Host or Origin freely; http does. */
function rawGet(
  url: string,
  headers: Record<string, string>,
  method = "GET",
): Promise<{ status: number; headers: http.IncomingHttpHeaders; text: string }> {
  return new Promise((resolve, reject) => {
    const request = http.request(url, { method, headers, agent: false }, (response) => {
      let text = "";
      response.on("data", (chunk: Buffer) => {
        text += chunk.toString();
        // A stream that opens against expectation would not end by itself.
        if (response.headers["content-type"]?.startsWith("text/event-stream")) request.destroy();
      });
      response.on("close", () => resolve({ status: response.statusCode ?? 0, headers: response.headers, text }));
    });
    request.on("error", reject);
    request.end();
  });
}

const bearer = { authorization: `Bearer ${ADMIN_KEY}` };
const refusal = (work: Promise<unknown>): Promise<number> =>
  work.then(
    () => 101,
    (error: unknown) => {
      if (error instanceof UpgradeRefused) return error.status;
      throw error;
    },
  );

verifies(
  "ORIGIN-HOST",
  "known bug 1: a stranger's page gets nowhere on any route, upgrade or stream, whatever it carries",
  async () => {
    await using server = await startServer({ options: { allowedOrigins: ["https://console.example"] } });
    const { id } = await server.session();
    const paths = [
      "/",
      "/healthz",
      "/v1/sessions",
      `/v1/sessions/${id}/events`,
      `/v1/sessions/${id}/events/stream`,
      "/metrics",
      "/v1/ws",
      "/nope",
    ];
    for (const origin of [EVIL, "null", "http://127.0.0.1:1", "https://console.example.evil.example", "file://"]) {
      for (const path of paths) {
        const answer = await rawGet(server.url + path, { ...bearer, origin });
        expect({ path, origin, status: answer.status }).toEqual({ path, origin, status: 403 });
        expect(JSON.parse(answer.text).error.code).toBe("origin_refused");
      }
      expect(await refusal(connect(server.url, { headers: { ...bearer, origin } }))).toBe(403);
    }
    expect((await rawGet(`${server.url}/v1/sessions`, { ...bearer, origin: "https://console.example" })).status).toBe(
      200,
    );
    using listed = await connect(server.url, { headers: { ...bearer, origin: "https://console.example" } });
    await listed.next("welcome");
    using own = await connect(server.url, { headers: { ...bearer, origin: server.url } });
    await own.next("welcome");
    using twin = await connect(server.url, {
      headers: { ...bearer, origin: `http://localhost:${server.broker.port}` },
    });
    await twin.next("welcome");
  },
);

verifies("ORIGIN-HOST", "only our own names are answered to, so a rebound name is worth nothing", async () => {
  await using server = await startServer({ options: { allowedHosts: ["patchbay.example"] } });
  const ask = async (host: string) => (await rawGet(`${server.url}/v1/sessions`, { ...bearer, host })).status;
  const { port } = server.broker;
  for (const host of [
    "evil.example",
    `evil.example:${port}`,
    "127.0.0.1.evil.example",
    "localhost.evil.example",
    "0x7f.1",
  ]) {
    expect({ host, status: await ask(host) }).toEqual({ host, status: 421 });
    expect(await refusal(connect(server.url, { headers: { ...bearer, host } }))).toBe(421);
  }
  for (const host of [
    `localhost:${port}`,
    `127.0.0.1:${port}`,
    `[::1]:${port}`,
    "192.0.2.7",
    "patchbay.example",
    `patchbay.example:${port}`,
  ]) {
    expect({ host, status: await ask(host) }).toEqual({ host, status: 200 });
  }
});

verifies("ORIGIN-HOST", "listed origins get CORS answers, others none, and loopback authenticates nobody", async () => {
  await using server = await startServer({ options: { allowedOrigins: ["https://console.example"] } });
  const preflight = (origin: string) =>
    rawGet(`${server.url}/v1/sessions`, { origin, "access-control-request-method": "POST" }, "OPTIONS");
  const allowed = await preflight("https://console.example");
  expect(allowed.status).toBe(204);
  expect(allowed.headers["access-control-allow-origin"]).toBe("https://console.example");
  expect(allowed.headers["access-control-allow-headers"]).toContain("authorization");
  expect(allowed.headers["access-control-allow-credentials"]).toBeUndefined();
  const refused = await preflight(EVIL);
  expect({ status: refused.status, header: refused.headers["access-control-allow-origin"] }).toEqual({
    status: 403,
    header: undefined,
  });
  expect((await server.call("GET", "/v1/sessions", { key: null })).status).toBe(401);
});

verifies(
  "P9-FOREIGN-404",
  "another tenant's session looks like one that never was, on every route and frame",
  async () => {
    await using server = await startServer();
    const { id } = await server.session({ prompt: "hello" });
    // The most that another tenant has: whoever may do everything there must learn nothing here.
    const stranger = await server.key(["admin"], "other");
    const essence = ({ status, body }: Answer) => ({ status, error: body?.error });
    for (const [method, path, body] of [
      ["GET", "", undefined],
      ["PATCH", "", { name: "x" }],
      ["DELETE", "", undefined],
      ["DELETE", "?purge=true", undefined],
      ["GET", "/events", undefined],
      ["GET", "/events/stream", undefined],
      ["GET", "/requests", undefined],
      ["GET", "/transcript", undefined],
      ["POST", "/commands", { id: "c", event_type: "query", payload: { text: "x" } }],
      ["POST", "/turns", { text: "x" }],
      ["POST", "/fork", {}],
    ] as const) {
      const ask = (session: string) =>
        server.call(method, `/v1/sessions/${session}${path}`, { key: stranger.key, body });
      const foreign = essence(await ask(id));
      expect(foreign.status).toBe(404);
      expect(foreign).toEqual(essence(await ask("ses_never")));
    }
    expect((await server.call("GET", "/v1/sessions", { key: stranger.key })).body.sessions).toEqual([]);
    const ticket = await server.call("POST", "/v1/tickets", { key: stranger.key, body: { session_id: id } });
    expect(ticket.status).toBe(404);
    using client = await server.socket({ key: stranger.key });
    client.send({ type: "subscribe", session_id: id });
    client.send({ type: "subscribe", session_id: "ses_never" });
    const [one, two] = [await client.next("error"), await client.next("error")];
    expect({ ...one, session_id: "" }).toEqual({ ...two, session_id: "" });
    expect(
      await client.command({ id: "c", session_id: id, event_type: "query", payload: { text: "x" } }),
    ).toMatchObject({ code: "not_found", session_id: id });
    client.send({ type: "watch" });
    client.send({ type: "ping" });
    await client.next("pong");
    expect(client.received.some(({ frame }) => frame.type === "session")).toBe(false);
  },
);

verifies("KEYS", "a viewer reads and does no more", async () => {
  await using server = await startServer();
  const { id } = await server.session();
  const viewer = await server.key(["viewer"]);
  const ask = (method: string, path: string, body?: unknown) => server.call(method, path, { key: viewer.key, body });
  expect((await ask("GET", `/v1/sessions/${id}`)).status).toBe(200);
  for (const [method, path, body] of [
    ["POST", "/v1/sessions", {}],
    ["PATCH", `/v1/sessions/${id}`, { name: "x" }],
    ["DELETE", `/v1/sessions/${id}`, undefined],
    ["POST", `/v1/sessions/${id}/turns`, { text: "x" }],
    ["POST", `/v1/sessions/${id}/commands`, { id: "1", event_type: "query", payload: { text: "x" } }],
    ["GET", "/v1/keys", undefined],
    ["POST", "/v1/keys", { roles: ["viewer"] }],
    ["DELETE", `/v1/keys/${viewer.id}`, undefined],
  ] as const) {
    expect({ path, status: (await ask(method, path, body)).status }).toEqual({ path, status: 403 });
  }
  using client = await server.socket({ key: viewer.key });
  expect(await client.command({ id: "c", session_id: id, event_type: "query", payload: { text: "x" } })).toMatchObject({
    code: "forbidden",
  });
});

verifies("KEYS", "revoking and expiring end live sockets and streams with 4501 within a second", async () => {
  await using server = await startServer();
  const { id } = await server.session();
  const revoked = await server.key(["viewer"]);
  const expiring = await server.call("POST", "/v1/keys", {
    body: { roles: ["viewer"], expires_at_ms: Date.now() + 1_500 },
  });
  using one = await server.socket({ key: revoked.key });
  using two = await server.socket({ key: expiring.body.key });
  using stream = await openSse(`${server.url}/v1/sessions/${id}/events/stream`, {
    headers: { authorization: `Bearer ${revoked.key}` },
  });
  const started = performance.now();
  await server.call("DELETE", `/v1/keys/${revoked.id}`);
  expect((await one.closed).code).toBe(4501);
  await stream.closed;
  expect(performance.now() - started).toBeLessThan(1_000);
  expect(stream.events.at(-1)).toMatchObject({ event: "problem" });
  expect((await two.closed).code).toBe(4501);
  expect(Date.now() - expiring.body.expires_at_ms).toBeLessThan(1_000);
  expect((await server.call("GET", "/v1/sessions", { key: revoked.key })).body.error.code).toBe("expired");
  expect((await server.call("GET", "/v1/keys")).text).not.toContain(revoked.key.split("_").slice(2).join("_"));
});

verifies("TICKETS", "a ticket opens one socket, to one session, with fewer roles", async () => {
  await using server = await startServer();
  const [mine, other] = [await server.session(), await server.session()];
  const ticket = async (body: unknown) => (await server.call("POST", "/v1/tickets", { body })).body.ticket;
  const text = await ticket({ session_id: mine.id, roles: ["viewer"] });
  using client = await connect(server.url, { query: `?ticket=${text}&session=${mine.id}` });
  expect((await client.next("welcome")).principal.roles).toEqual(["viewer"]);
  await client.next("subscribed");
  client.send({ type: "subscribe", session_id: other.id });
  expect(await client.next("error")).toMatchObject({ code: "not_found" });
  client.send({ type: "watch" });
  expect((await client.next("session")).id).toBe(mine.id);
  expect(await refusal(connect(server.url, { query: `?ticket=${text}` }))).toBe(401);
  expect((await server.call("GET", `/v1/sessions?ticket=${await ticket({})}`, { key: null })).status).toBe(401);
  const stream = await ticket({ session_id: mine.id });
  const address = `${server.url}/v1/sessions/${mine.id}/events/stream?ticket=${stream}`;
  for (let round = 0; round < 2; round++) {
    using opened = await openSse(address);
    expect(opened.status).toBe(200);
  }
  expect((await rawGet(`${server.url}/v1/sessions/${other.id}/events/stream?ticket=${stream}`, {})).status).toBe(401);
});

verifies("TICKETS", "the console link becomes a cookie that counts with our own Origin only", async () => {
  await using server = await startServer();
  const link = await server.broker.consoleUrl();
  const answer = await rawGet(`${link}&session=s1`, {});
  expect({ status: answer.status, location: answer.headers.location }).toEqual({
    status: 303,
    location: "/?session=s1",
  });
  const [set] = answer.headers["set-cookie"] ?? [];
  expect(set).toMatch(/HttpOnly; SameSite=Strict; Max-Age=\d+$/);
  expect((await rawGet(link, {})).status).toBe(401);
  const cookie = set?.split(";")[0] ?? "";
  const list = async (headers: Record<string, string>) =>
    (await rawGet(`${server.url}/v1/sessions`, { cookie, ...headers })).status;
  expect(await list({ origin: server.url })).toBe(200);
  expect(await list({ "sec-fetch-site": "same-origin" })).toBe(200);
  expect(await list({})).toBe(401);
  expect(await list({ "sec-fetch-site": "same-site" })).toBe(401);
  expect(await list({ origin: EVIL })).toBe(403);
  // Another port of this host is same-site for a browser: it sends the cookie along.
  expect(await list({ origin: `http://localhost:${server.broker.port}` })).toBe(401);
  using client = await connect(server.url, { headers: { cookie, origin: server.url } });
  await client.next("welcome");
  using anonymous = await connect(server.url, { headers: { cookie } });
  anonymous.send({ type: "ping" });
  expect((await anonymous.closed).code).toBe(4502);
});

test("the page is served with a strict policy, and nothing beside it", async () => {
  await using server = await startServer();
  const page = await server.call("GET", "/", { key: null });
  expect(page.status).toBe(200);
  expect(page.headers.get("content-security-policy")).toContain("default-src 'none'");
  expect(page.headers.get("x-content-type-options")).toBe("nosniff");
  expect(page.headers.get("referrer-policy")).toBe("no-referrer");
  const scripts = [...page.text.matchAll(/(?:src|href)="(\/assets\/[^"]+)"/g)].map((match) => match[1] ?? "");
  expect(scripts.length).toBeGreaterThan(0);
  for (const path of scripts) expect((await server.call("GET", path, { key: null })).status).toBe(200);
  for (const path of ["/assets/..%2fserver.ts", "/assets/server.ts", "/assets/%00", "/assets/constructor"]) {
    expect((await server.call("GET", path, { key: null })).status).toBe(404);
  }
});

test("no ticket, key or cookie reaches the log", async () => {
  await using host = await openSessionHost();
  const lines: string[] = [];
  const sink = new Writable({
    write(chunk, _encoding, done) {
      lines.push(String(chunk));
      done();
    },
  });
  const store = openMemoryStore();
  const auth = await createAuth({ store, adminKey: ADMIN_KEY });
  const config = { version: "0", ready: async () => ({ ok: true, checks: {} }) };
  const policies = await createPolicies(store);
  const app = await createApi({
    auth,
    sessions: host.sessions,
    policies,
    runners: createDialledRunners({ epoch: 1, broker: "test", known: [], save() {}, report() {} }),
    webhooks: await createWebhooks({ store, sealer: TEST_SEALER, report: () => undefined }),
    config,
    logger: pino({ level: "trace" }, sink),
  });
  const url = await app.listen({ host: "127.0.0.1", port: 0 });
  const { body } = await callServer(url, "POST", "/v1/tickets", { body: {} });
  const page = await rawGet(`${url}/?ticket=${(await auth.createConsoleTicket()).ticket}`, {});
  const cookie = (page.headers["set-cookie"]?.[0] ?? "").split(";")[0] ?? "";
  await rawGet(`${url}/v1/sessions?ticket=stolenticket`, { cookie, origin: url });
  await rawGet(`${url}/nope?ticket=stolenticket`, bearer);
  await rawGet(`${url}/%ff?ticket=stolenticket`, bearer);
  using client = await connect(url, { query: `?ticket=${body.ticket}` });
  await client.next("welcome");
  using late = await connect(url);
  late.send({ type: "auth", token: "stolentoken-stolentoken" });
  await late.closed;
  await app.close();
  await store.close();
  const log = lines.join("");
  expect(log).toContain("/v1/tickets");
  for (const secret of [
    body.ticket,
    "stolenticket",
    "stolentoken",
    ADMIN_KEY,
    cookie.split("=")[1] ?? "?",
    "ticket=",
  ]) {
    expect(log).not.toContain(secret);
  }
});
