import { randomBytes } from "node:crypto";
import { connect as connectTcp } from "node:net";
import { expect, test } from "vitest";
import { SUBPROTOCOL } from "../../src/protocol/frames.ts";
import { ADMIN_KEY, startServer } from "../kit/server.ts";
import { verifies } from "../kit/verifies.ts";
import { connect } from "../kit/ws-client.ts";

const bearer = { authorization: `Bearer ${ADMIN_KEY}` };

/** One masked client frame, by hand (RFC 6455 5.2). */
function clientFrame(text: string, { opcode = 1, fin = true } = {}): Buffer {
  const payload = Buffer.from(text);
  const mask = randomBytes(4);
  const head = payload.length < 126 ? [0x80 | payload.length] : [0x80 | 126, payload.length >> 8, payload.length & 255];
  const masked = payload.map((byte, index) => byte ^ (mask[index % 4] ?? 0));
  return Buffer.concat([Buffer.from([(fin ? 0x80 : 0) | opcode, ...head]), mask, masked]);
}

function upgradeRequest(port: number, headers: readonly string[] = []): string {
  return [
    "GET /v1/ws HTTP/1.1",
    `Host: 127.0.0.1:${port}`,
    "Connection: Upgrade",
    "Upgrade: websocket",
    "Sec-WebSocket-Version: 13",
    `Sec-WebSocket-Key: ${randomBytes(16).toString("base64")}`,
    ...headers,
    "",
    "",
  ].join("\r\n");
}

/** Writes bytes on a raw connection and reads until `enough`. */
function exchange(port: number, bytes: Buffer, enough: (text: string) => boolean): Promise<string> {
  return new Promise((resolve, reject) => {
    let text = "";
    const socket = connectTcp(port, "127.0.0.1", () => socket.write(bytes));
    socket.on("data", (chunk) => {
      text += chunk.toString("latin1");
      if (enough(text)) socket.destroy();
    });
    socket.on("close", () => resolve(text));
    socket.on("error", reject);
  });
}

verifies("WS-AUTH", "the subprotocol is echoed and the first frame may authenticate", async () => {
  await using server = await startServer({ options: { heartbeatMs: 12_345 } });
  using client = await connect(server.url);
  expect(client.socket.protocol).toBe(SUBPROTOCOL);
  client.send({ type: "auth", token: ADMIN_KEY });
  expect(await client.next("welcome")).toEqual({
    type: "welcome",
    protocol: SUBPROTOCOL,
    connection_id: expect.any(String),
    principal: { id: "testadmin", tenant: "default", roles: ["operator"] },
    heartbeat_ms: 12_345,
  });
  client.send({ type: "auth", token: ADMIN_KEY });
  expect(await client.next("error")).toMatchObject({ code: "bad_request" });
  client.send({ type: "ping" });
  await client.next("pong");
});

verifies(
  "WS-AUTH",
  "known bug 17: frames in the same segment as the upgrade, and behind auth, are all handled in order",
  async () => {
    await using server = await startServer();
    const { port } = server.broker;
    const pings = (count: number) => Array.from({ length: count }, () => clientFrame('{"type":"ping"}'));
    const count = (text: string) => text.split('{"type":"pong"}').length - 1;
    const byHeader = Buffer.concat([
      Buffer.from(upgradeRequest(port, [`Authorization: Bearer ${ADMIN_KEY}`])),
      ...pings(5),
    ]);
    expect(await exchange(port, byHeader, (text) => count(text) === 5)).toMatch(/welcome.*pong/s);
    const auth = clientFrame(JSON.stringify({ type: "auth", token: ADMIN_KEY }));
    const byFrame = Buffer.concat([Buffer.from(upgradeRequest(port)), auth, ...pings(5)]);
    expect(await exchange(port, byFrame, (text) => count(text) === 5)).toMatch(/welcome.*pong/s);
  },
);

verifies(
  "WS-AUTH",
  "a bad token, another first frame and silence are told and closed; what came behind is discarded",
  async () => {
    await using server = await startServer({ tuning: { api: { authTimeoutMs: 200 } } });
    using wrong = await connect(server.url);
    wrong.send({ type: "auth", token: "pb_nobody_0123456789abcdefghij" });
    wrong.send({ type: "watch" });
    expect(await wrong.closed).toEqual({ code: 4502, reason: "unauthenticated" });
    expect(wrong.received.map(({ frame }) => frame)).toMatchObject([
      { type: "error", code: "unauthenticated", retry: false },
    ]);
    for (const frame of ['{"type":"ping"}', "not json", '{"type":"auth"}']) {
      using other = await connect(server.url);
      other.sendText(frame);
      expect((await other.closed).code).toBeGreaterThanOrEqual(4500);
    }
    using silent = await connect(server.url);
    expect(await silent.closed).toEqual({ code: 4004, reason: "auth_timeout" });
    await expect(connect(server.url, { headers: { authorization: "Bearer nonsense" } })).rejects.toMatchObject({
      status: 401,
    });
    await expect(connect(server.url, { headers: bearer, query: "?sesion=x" })).rejects.toMatchObject({ status: 400 });
  },
);

verifies("WS-LIMITS", "an unauthenticated socket cannot make the server hold megabytes", async () => {
  await using server = await startServer();
  using client = await connect(server.url);
  client.sendText(JSON.stringify({ type: "auth", token: "x".repeat(4 * 1024 * 1024) }));
  expect(await client.closed).toEqual({ code: 1009, reason: "too_large" });
  using pipelining = await connect(server.url);
  const { id } = await server.session();
  pipelining.send({ type: "auth", token: ADMIN_KEY });
  const text = "y".repeat(3 * 1024 * 1024);
  expect(await pipelining.command({ id: "big", session_id: id, event_type: "query", payload: { text } })).toMatchObject(
    { type: "ack" },
  );
});

verifies(
  "WS-FRAMES",
  "malformed frames are answered, name what they were about, and do not close the socket",
  async () => {
    await using server = await startServer();
    const { id } = await server.session();
    using client = await server.socket();
    const refused = async (frame: unknown) => {
      client.sendText(typeof frame === "string" ? frame : JSON.stringify(frame));
      return client.next("error");
    };
    expect(await refused("{")).toMatchObject({ code: "bad_request", details: { field: "frame" } });
    expect(await refused("[]")).toMatchObject({ code: "bad_request", details: { field: "type" } });
    expect(await refused({ type: "constructor" })).toMatchObject({ code: "bad_request" });
    expect(await refused({ type: "subscribe" })).toMatchObject({
      code: "bad_request",
      details: { field: "session_id" },
    });
    expect(await refused({ type: "subscribe", session_id: id, after: -1 })).toMatchObject({
      code: "bad_request",
      session_id: id,
    });
    expect(await refused({ type: "subscribe", session_id: id, extra: 1 })).toMatchObject({ code: "bad_request" });
    const command = { type: "command", id: "c1", session_id: id, event_type: "query", payload: { text: "" } };
    expect(await refused(command)).toMatchObject({ code: "bad_request", id: "c1", session_id: id });
    expect(await refused({ ...command, event_type: "dance" })).toMatchObject({ code: "bad_request", id: "c1" });
    expect(await refused({ ...command, session_id: "nobody" })).toMatchObject({
      code: "not_found",
      id: "c1",
      session_id: "nobody",
    });
    client.sendText(Buffer.from('{"type":"ping"}'), true);
    expect(await client.next("error")).toMatchObject({ code: "bad_request" });
    client.send({ type: "ping" });
    await client.next("pong");
  },
);

verifies("WS-LIMITS", "only a query may exceed 1 MiB, nothing 32 MiB, and nonsense has an end", async () => {
  await using server = await startServer();
  const { id } = await server.session();
  using client = await server.socket();
  const fill = "z".repeat(2 * 1024 * 1024);
  const control = { type: "command", id: "c", session_id: id, event_type: "control_request" };
  client.send({ ...control, payload: { request_id: "r", request: { subtype: "interrupt", fill } } });
  expect(await client.next("error")).toMatchObject({ code: "too_large", id: "c" });
  client.sendText("w".repeat(33 * 1024 * 1024));
  expect((await client.closed).code).toBe(1009);
  using noisy = await server.socket();
  for (let round = 0; round < 101; round++) noisy.sendText("?");
  expect(await noisy.closed).toEqual({ code: 4500, reason: "bad_request" });
  using fragments = await server.socket();
  // 20,000 one-byte fragments of one message pin memory out of proportion (known-bug 27).
  for (let round = 0; round < 20_000; round++) fragments.socket.send("a", { fin: false });
  expect((await fragments.closed).code).not.toBe(1006);
});

verifies(
  "WS-LIMITS",
  "a socket follows a bounded number of sessions, and many commands at once keep their order",
  async () => {
    await using server = await startServer({ tuning: { api: { subscriptionsPerSocket: 2, commandsInFlight: 4 } } });
    const ids = [await server.session(), await server.session(), await server.session()].map(({ id }) => id);
    using client = await server.socket();
    for (const session_id of ids) client.send({ type: "subscribe", session_id });
    expect(await client.next("error")).toMatchObject({ code: "rate_limited", session_id: ids[2] });
    client.send({ type: "unsubscribe", session_id: ids[0] });
    client.send({ type: "subscribe", session_id: ids[2] });
    await client.next("subscribed", (frame) => frame.session_id === ids[2]);
    const session_id = ids[1] ?? "";
    const send = (round: number) =>
      client.command({ id: `c${round}`, session_id, event_type: "query", payload: { text: `${round}` } });
    const acks = await Promise.all(Array.from({ length: 40 }, (_, round) => send(round)));
    const seqs = acks.map((ack) => (ack.type === "ack" ? ack.seq : -1));
    expect(seqs).toEqual(seqs.toSorted((a, b) => a - b));
  },
);

verifies(
  "WS-SUBSCRIBE",
  "subscribed comes before the first event, and a second subscribe replaces the first",
  async () => {
    await using server = await startServer();
    const { id } = await server.session({ prompt: "hello" });
    await server.call("POST", `/v1/sessions/${id}/turns`, { body: { text: "again", wait_s: 20 } });
    using client = await server.socket();
    for (let round = 0; round < 10; round++) client.send({ type: "subscribe", session_id: id, after: 0 });
    client.send({ type: "subscribe", session_id: id, after: "head" });
    for (let round = 0; round < 11; round++) await client.next("subscribed");
    client.send({ type: "ping" });
    await client.next("pong");
    let seen = 0;
    for (const { frame } of client.received) {
      if (frame.type === "subscribed") seen = 0;
      if (frame.type !== "event") continue;
      expect(frame.seq).toBeGreaterThan(seen);
      seen = frame.seq;
    }
    const before = client.events().length;
    await server.call("POST", `/v1/sessions/${id}/turns`, { body: { text: "live", wait_s: 20 } });
    await client.next("event", (event) => event.event_type === "turn.completed" && event.seq > seen);
    const live = client.events().slice(before);
    expect(new Set(live.map(({ seq }) => seq)).size).toBe(live.length);
    client.send({ type: "subscribe", session_id: id, after: 10_000 });
    expect(await client.next("error")).toMatchObject({ code: "cursor_ahead", session_id: id });
  },
);

verifies(
  "WS-SUBSCRIBE",
  "many subscribers at random moments of a stream each get every durable event once",
  async () => {
    await using server = await startServer();
    const { id } = await server.session();
    await using clients = new AsyncDisposableStack();
    const turn = server.call("POST", `/v1/sessions/${id}/turns`, { body: { text: "!stream 1500 40 1", wait_s: 25 } });
    const sockets = [];
    for (let round = 0; round < 12; round++) {
      const client = clients.use(await server.socket());
      client.send({ type: "subscribe", session_id: id, after: 0 });
      sockets.push(client);
    }
    expect((await turn).body.outcome).toBe("completed");
    const page = await server.call("GET", `/v1/sessions/${id}/events?limit=1000`);
    const durable: number[] = page.body.events.map((event: { seq: number }) => event.seq);
    for (const client of sockets) {
      await client.next("event", (event) => event.event_type === "turn.completed");
      const seqs = client.events().map(({ seq }): number => seq);
      expect(seqs).toEqual([...new Set(seqs)].toSorted((a, b) => a - b));
      const last = seqs.at(-1) ?? 0;
      expect(durable.filter((seq) => seq <= last && !seqs.includes(seq))).toEqual([]);
    }
  },
  60_000,
);

verifies("WS-SUBSCRIBE", "an open request is in subscribed, or comes as an event, never both", async () => {
  await using server = await startServer();
  const { id } = await server.session();
  using early = await server.socket({ query: `?session=${id}` });
  expect(
    await early.command({ id: "q", session_id: id, event_type: "query", payload: { text: "!ask" } }),
  ).toMatchObject({ type: "ack" });
  const opened = await early.next("event", (event) => event.event_type === "request.opened");
  using late = await server.socket({ query: `?session=${id}&after=head` });
  const standing = await late.next("subscribed");
  expect(standing.open_requests).toMatchObject([{ seq: opened.seq, kind: "permission" }]);
  expect(standing.head).toBeGreaterThanOrEqual(opened.seq);
  const request_id = standing.open_requests[0]?.request_id ?? "";
  const payload = { response: { subtype: "success", request_id, response: { behavior: "allow", updatedInput: {} } } };
  const answer = { session_id: id, event_type: "control_response", payload };
  expect(await late.command({ id: "a1", ...answer })).toMatchObject({ type: "ack" });
  expect(await early.command({ id: "a2", ...answer })).toMatchObject({
    type: "error",
    code: "request_already_answered",
  });
  await late.next("event", (event) => event.event_type === "request.resolved");
  expect(late.events().some((event) => event.event_type === "request.opened")).toBe(false);
});

verifies("WS-SUBSCRIBE", "an ended session is replayed and then ended; a purged one ends its readers", async () => {
  await using server = await startServer();
  const { id } = await server.session({ prompt: "hello" });
  using live = await server.socket({ query: `?session=${id}` });
  await live.next("event", (event) => event.event_type === "turn.completed");
  await server.call("DELETE", `/v1/sessions/${id}`);
  expect(await live.next("ended")).toEqual({ type: "ended", session_id: id });
  using late = await server.socket({ query: `?session=${id}&previews=false` });
  await late.next("ended");
  const durable = live.events().filter((event) => event.preview === undefined);
  expect(late.events().map(({ seq }) => seq)).toEqual(durable.map(({ seq }) => seq));
  using atHead = await server.socket({ query: `?session=${id}&after=head` });
  await atHead.next("ended");
  expect(atHead.events()).toEqual([]);
});

test("watch tells states and open requests of all sessions, and each change", async () => {
  await using server = await startServer();
  const before = await server.session({ name: "before" });
  using client = await server.socket();
  client.send({ type: "watch" });
  await client.next("session", (view) => view.id === before.id);
  const { id } = await server.session({ name: "after", prompt: "!ask" });
  const asking = await client.next("session", (view) => view.id === id && view.state === "requires_action");
  expect(asking.open_requests).toHaveLength(1);
  expect(client.received.some(({ frame }) => frame.type === "event")).toBe(false);
});
