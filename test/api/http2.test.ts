import { describe, expect, test } from "vitest";
import { listRoutes } from "../../src/api/routes.ts";
import { connectHttp2 } from "../kit/http2-client.ts";
import { ADMIN_KEY, type ServerOptions, startServer } from "../kit/server.ts";
import { TEST_CERTIFICATE, TEST_CERTIFICATE_KEY } from "../kit/tls.ts";
import { verifies } from "../kit/verifies.ts";

const bearer = { authorization: `Bearer ${ADMIN_KEY}` };
const asJson = { ...bearer, "content-type": "application/json" };

/** A server and one HTTP/2 connection to it. */
async function startOver(more: ServerOptions["options"] = {}) {
  const server = await startServer({ options: more });
  const connection = await connectHttp2(server.url, more.tlsCert);
  return {
    ...server,
    text: connection.text,
    async [Symbol.asyncDispose]() {
      connection[Symbol.dispose]();
      await server[Symbol.asyncDispose]();
    },
  };
}

describe.each([
  { over: "plain", tls: {} },
  { over: "TLS", tls: { tlsCert: TEST_CERTIFICATE, tlsKey: TEST_CERTIFICATE_KEY } },
])("HTTP/2, $over", ({ over, tls }) => {
  verifies("HTTP2", "a session is made, driven, read and ended over one connection", async () => {
    await using server = await startOver(tls);
    const made = await server.text("POST", "/v1/sessions", asJson, JSON.stringify({ name: "two" }));
    expect([made.status, made.headers["content-type"]]).toEqual([201, "application/json; charset=utf-8"]);
    const { id } = JSON.parse(made.text);
    const body = JSON.stringify({ text: "hello", wait_s: 20 });
    const [turn, again] = await Promise.all([
      server.text("POST", `/v1/sessions/${id}/turns`, asJson, body),
      server.text("GET", `/v1/sessions/${id}`, bearer),
    ]);
    expect([turn.status, JSON.parse(turn.text).outcome, again.status]).toEqual([200, "completed", 200]);
    const transcript = await server.text("GET", `/v1/sessions/${id}/transcript`, bearer);
    expect(transcript.headers["content-type"]).toBe("application/x-ndjson; charset=utf-8");
    expect(transcript.text.split("\n").length).toBeGreaterThan(3);
    const ended = await server.text("DELETE", `/v1/sessions/${id}`, asJson);
    expect(ended.status, ended.text).toBe(200);
  });

  verifies(
    "ORIGIN-HOST",
    "the authority counts as the Host, and so does a cookie only with our own Origin",
    async () => {
      await using server = await startOver(tls);
      const list = async (headers: Record<string, string>) =>
        (await server.text("GET", "/v1/sessions", headers)).status;
      expect(await list(bearer)).toBe(200);
      expect(await list({ ...bearer, ":authority": "evil.example" })).toBe(421);
      expect(await list({ ...bearer, ":authority": "evil.example", host: "localhost" })).toBe(421);
      expect(await list({ ...bearer, ":authority": "localhost", host: "evil.example" })).toBe(421);
      expect(await list({ ...bearer, origin: "https://evil.example" })).toBe(403);
      const link = new URL(await server.broker.consoleUrl());
      const redeemed = await server.text("GET", link.pathname + link.search);
      expect([redeemed.status, redeemed.headers["location"]]).toEqual([303, "/"]);
      const set = redeemed.headers["set-cookie"] ?? "";
      expect(set).toContain(`patchbay_${server.broker.port}=`);
      expect(set.includes("; Secure")).toBe(over === "TLS");
      const cookie = set.split(";")[0] ?? "";
      expect(await list({ cookie, origin: server.url })).toBe(200);
      expect(await list({ cookie, "sec-fetch-site": "same-origin" })).toBe(200);
      expect(await list({ cookie })).toBe(401);
      const page = await server.text("GET", "/");
      expect(page.headers["content-security-policy"]).toContain("default-src 'none'");
      for (const [, path = ""] of page.text.matchAll(/(?:src|href)="(\/assets\/[^"]+)"/g)) {
        expect((await server.text("GET", path)).status).toBe(200);
      }
    },
  );
});

verifies(
  "HTTP2",
  "bodies over their limit, bad JSON and unknown routes get the same answers as over HTTP/1.1",
  async () => {
    await using server = await startOver({ queryLimitBytes: 2_000 });
    const post = async (body: string) => {
      const { status, text } = await server.text("POST", "/v1/sessions", asJson, body);
      return [status, JSON.parse(text).error.code];
    };
    expect(await post("{")).toEqual([400, "bad_request"]);
    expect(await post(JSON.stringify({ name: "x".repeat(3_000) }))).toEqual([413, "too_large"]);
    expect((await server.text("GET", "/v1/nothing", bearer)).status).toBe(404);
    expect((await server.text("GET", "/v1/sessions")).status).toBe(401);
    expect((await server.text("GET", "/v1/ws", bearer)).status).toBe(400);
  },
);

/** A11b of the acceptance list for Runloop's clients, which label every POST as JSON. */
test.each([
  { version: "HTTP/1.1", http2: false },
  { version: "HTTP/2", http2: true },
])("an empty body labelled as JSON is no reason to refuse any route, over $version", async ({ http2 }) => {
  await using server = await startOver();
  const { id } = await server.session();
  const ask = async (method: string, path: string): Promise<string> => {
    const { text } = http2
      ? await server.text(method, path, { ...asJson, "content-length": "0" })
      : await server.call(method, path, { raw: "", headers: { "content-type": "application/json" } });
    return text;
  };
  const routes = (await listRoutes()).filter(({ method }) => method !== "GET");
  expect(routes.length).toBeGreaterThan(10);
  for (const { method, url } of routes) {
    const text = await ask(method, url.replace(/:[A-Za-z_]+/g, id));
    expect(text, `${method} ${url}`).not.toMatch(/empty|FST_|valid HTTP|acceptable JSON/);
  }
});
