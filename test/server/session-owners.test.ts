import { randomUUID } from "node:crypto";
import { expect } from "vitest";
import { type ClientSession, connect as connectClient } from "../../src/client/index.ts";
import type { JsonObject } from "../../src/protocol/json.ts";
import { startFaultProxy } from "../kit/fault-proxy.ts";
import { payloadField } from "../kit/payload-field.ts";
import { startServer, type TestServer } from "../kit/server.ts";
import { verifies } from "../kit/verifies.ts";
import type { EventFrame, WsClient } from "../kit/ws-client.ts";

const REGISTER = {
  owner: "page",
  hooks: { PreToolUse: [{ matcher: "Bash", hookCallbackIds: ["h1"] }] },
  mcp_servers: ["page"],
};
const CALL = {
  subtype: "mcp_message",
  server_name: "page",
  message: { jsonrpc: "2.0", id: 7, method: "tools/call", params: { name: "echo" } },
};
const REPLY = { mcp_response: { jsonrpc: "2.0", id: 7, result: { content: [{ type: "text", text: "pong" }] } } };
/** What the CLI sends of a hook: its id is the owner's, percent-encoded, and the client's own. */
const hookCall = (owner: string) => ({
  subtype: "hook_callback",
  callback_id: `${encodeURIComponent(owner)}:h1`,
  input: { hook_event_name: "PreToolUse", tool_name: "Bash" },
});
const GRACE_MS = 400;

const said = (event: EventFrame | undefined): string => String(payloadField(event, "result"));
const ofType =
  (type: string, after = 0) =>
  (event: EventFrame): boolean =>
    event.event_type === type && event.seq > after;
const idOf = (event: EventFrame): string => String(payloadField(event, "request_id"));

/** A turn in which the agent asks this. */
function ask(socket: WsClient, sessionId: string, request: JsonObject) {
  const payload = { text: `!request ${JSON.stringify(request)}` };
  return socket.command({ id: randomUUID(), session_id: sessionId, event_type: "query", payload });
}

type Reply =
  | { readonly subtype: "success"; readonly response: JsonObject }
  | { readonly subtype: "error"; readonly error: string };

function answer(socket: WsClient, sessionId: string, requestId: string, reply: Reply) {
  const payload = { type: "control_response", response: { ...reply, request_id: requestId } };
  return socket.command({ id: randomUUID(), session_id: sessionId, event_type: "control_response", payload });
}

/** A page that serves a hook and a tool: its socket, and the owner that the server knows it as. */
async function servePage(server: TestServer, sessionId: string) {
  const socket = await server.socket();
  socket.send({ type: "subscribe", session_id: sessionId, capabilities: ["hooks", "mcp"], register: REGISTER });
  const { owner = "", head, open_requests } = await socket.next("subscribed");
  return { socket, owner, head, open_requests };
}

verifies(
  "REGISTER",
  "a client that leaves while its tool and hook are called, and returns, is asked again: the turn completes",
  async () => {
    await using server = await startServer();
    const { id } = await server.session();
    using driver = await server.socket({ query: `?session=${id}` });
    let seen = 0;
    for (const kind of ["mcp", "hook"] as const) {
      const first = await servePage(server, id);
      expect(first.owner).toBe("testadmin/page");
      await ask(driver, id, kind === "mcp" ? CALL : hookCall(first.owner));
      const opened = await first.socket.next("event", ofType("request.opened", seen));
      expect(opened.payload).toMatchObject({ kind, owner: first.owner, ...(kind === "hook" && { callback_id: "h1" }) });
      first.socket[Symbol.dispose]();
      const left = await driver.next("event", ofType("registration.changed", opened.seq));
      expect(left.payload).toMatchObject({ owner: first.owner, connected: false });
      const again = await servePage(server, id);
      expect(again.open_requests.map(({ request_id }) => request_id)).toEqual([idOf(opened)]);
      const response = kind === "mcp" ? REPLY : { hookSpecificOutput: { hookEventName: "PreToolUse" } };
      expect(await answer(again.socket, id, idOf(opened), { subtype: "success", response })).toMatchObject({
        type: "ack",
      });
      expect(JSON.parse(said(await driver.next("event", ofType("result", opened.seq))))).toMatchObject([{ response }]);
      seen = (await driver.next("event", ofType("turn.completed", opened.seq))).seq;
      again.socket[Symbol.dispose]();
    }
  },
);

verifies(
  "REGISTER",
  "a tool whose client is cut off while it works is answered over the next connection, once",
  async () => {
    await using server = await startServer();
    await using proxy = await startFaultProxy(server.broker.port);
    const { id } = await server.session();
    const client = connectClient({ url: proxy.url, token: server.adminKey });
    const page: ClientSession = client.session(id);
    const calls: unknown[] = [];
    using driver = await server.socket({ query: `?session=${id}` });
    page.serve({
      mcpServers: {
        page: async (message) => {
          calls.push(message.id);
          // Answers once the server has seen the page go: the answer can only come by another connection.
          proxy.cut();
          await driver.next("event", (event) => payloadField(event, "connected") === false);
          return { jsonrpc: "2.0", id: message.id, result: { content: [] } };
        },
      },
    });
    await driver.next("event", ofType("registration.changed"));
    await ask(driver, id, CALL);
    const told = JSON.parse(said(await driver.next("event", ofType("result"))));
    expect(told).toMatchObject([{ subtype: "success", response: { mcp_response: { id: 7, result: {} } } }]);
    expect(calls).toEqual([7]);
    client.close();
  },
);

verifies(
  "REGISTER",
  "a client that does not return gets its error after the grace, later calls at once, and another turn goes on meanwhile",
  async () => {
    await using server = await startServer({ tuning: { sessions: { ownerGraceMs: GRACE_MS } } });
    const { id } = await server.session();
    const neighbour = await server.session();
    using driver = await server.socket({ query: `?session=${id}` });
    using other = await server.socket({ query: `?session=${neighbour.id}` });
    const { socket } = await servePage(server, id);
    await ask(driver, id, CALL);
    const opened = await driver.next("event", ofType("request.opened"));
    socket[Symbol.dispose]();
    const left = await driver.next("event", (event) => payloadField(event, "connected") === false);
    const turn = { id: randomUUID(), session_id: neighbour.id, event_type: "query", payload: { text: "hello" } };
    await other.command(turn);
    const meanwhile = await other.next("event", ofType("turn.completed"));
    const resolved = await driver.next("event", ofType("request.resolved"));
    expect(resolved.payload).toMatchObject({ request_id: idOf(opened), outcome: "answered", decided_by: "broker" });
    expect(resolved.timestamp_ms - left.timestamp_ms).toBeGreaterThanOrEqual(GRACE_MS);
    expect(meanwhile.timestamp_ms).toBeLessThan(resolved.timestamp_ms);
    expect(said(await driver.next("event", ofType("result")))).toContain("is not connected");
    await ask(driver, id, CALL);
    const next = await driver.next("event", ofType("request.resolved", resolved.seq));
    const asked = await driver.next("event", ofType("request.opened", opened.seq));
    expect(next.timestamp_ms - asked.timestamp_ms).toBeLessThan(GRACE_MS);
  },
);

verifies("REGISTER", "each time that a client goes it has the whole grace to come back", async () => {
  await using server = await startServer({ tuning: { sessions: { ownerGraceMs: GRACE_MS } } });
  const { id } = await server.session();
  const neighbour = await server.session();
  await server.call("POST", `/v1/sessions/${neighbour.id}/turns`, { body: { text: "start", wait_s: 5 } });
  using driver = await server.socket({ query: `?session=${id}` });
  const first = await servePage(server, id);
  await ask(driver, id, CALL);
  await driver.next("event", ofType("request.opened"));
  first.socket[Symbol.dispose]();
  const left = await driver.next("event", (event) => payloadField(event, "connected") === false);
  const again = await servePage(server, id);
  // Goes for the second time when a good part of the first grace is over: a turn elsewhere takes that long.
  await driver.next("event", (event) => payloadField(event, "connected") === true && event.seq > left.seq);
  const text = `!stream 2 1 ${GRACE_MS / 4}`;
  await server.call("POST", `/v1/sessions/${neighbour.id}/turns`, { body: { text, wait_s: 5 } });
  again.socket[Symbol.dispose]();
  const second = await driver.next(
    "event",
    (event) => payloadField(event, "connected") === false && event.seq > left.seq,
  );
  const resolved = await driver.next("event", ofType("request.resolved"));
  expect(resolved.timestamp_ms - second.timestamp_ms).toBeGreaterThanOrEqual(GRACE_MS);
});

verifies(
  "P6-ONE-ANSWER",
  "an answer of a connection that did not say it can, or of one that is not the owner, settles nothing, an error no more than a decision",
  async () => {
    await using server = await startServer();
    const { id } = await server.session();
    using questions = await server.socket();
    questions.send({ type: "subscribe", session_id: id, capabilities: ["questions"] });
    await questions.next("subscribed");
    const command = { id: randomUUID(), session_id: id, event_type: "query", payload: { text: "!ask" } };
    await questions.command(command);
    const opened = await questions.next("event", ofType("request.opened"));
    const replies: Reply[] = [
      { subtype: "success", response: { behavior: "allow" } },
      { subtype: "success", response: { behavior: "deny", message: "no" } },
      { subtype: "error", error: "no handler here" },
    ];
    for (const reply of replies) {
      expect(await answer(questions, id, idOf(opened), reply)).toMatchObject({ type: "error", code: "forbidden" });
    }
    const listed = await server.call("GET", `/v1/sessions/${id}/requests`);
    expect(JSON.stringify(listed.body)).toContain(idOf(opened));
    using capable = await server.socket({ query: `?session=${id}` });
    expect(await answer(capable, id, idOf(opened), { subtype: "error", error: "no" })).toMatchObject({
      type: "error",
      code: "invalid_answer",
    });
    expect(
      await answer(capable, id, idOf(opened), { subtype: "success", response: { behavior: "allow" } }),
    ).toMatchObject({ type: "ack" });
    const ended = await questions.next("event", ofType("turn.completed"));

    const page = await servePage(server, id);
    await ask(capable, id, CALL);
    const called = await page.socket.next("event", ofType("request.opened", ended.seq));
    for (const reply of [
      { subtype: "success", response: REPLY } as const,
      { subtype: "error", error: "no" } as const,
    ]) {
      expect(await answer(capable, id, idOf(called), reply)).toMatchObject({ type: "error", code: "forbidden" });
      const payload = { type: "control_response", response: { ...reply, request_id: idOf(called) } };
      const body = { id: randomUUID(), event_type: "control_response", payload };
      expect((await server.call("POST", `/v1/sessions/${id}/commands`, { body })).status).toBe(403);
    }
    expect(await answer(page.socket, id, idOf(called), { subtype: "success", response: REPLY })).toMatchObject({
      type: "ack",
    });
    await capable.next("event", ofType("turn.completed", ended.seq));
    const resolved = capable.events(id).filter(({ event_type }) => event_type === "request.resolved");
    expect(resolved.map(({ payload }) => payload)).toMatchObject([
      { request_id: idOf(opened), outcome: "answered", decision: { behavior: "allow" } },
      { request_id: idOf(called), outcome: "answered", decided_by: "testadmin" },
    ]);
    page.socket[Symbol.dispose]();
  },
);
