import { expect, test } from "vitest";
import {
  type ConnectOptions,
  connect,
  type IncomingRequest,
  PatchbayError,
  type SessionEvent,
  type Status,
} from "../../src/client/index.ts";
import { verifies } from "../kit/verifies.ts";
import { event, startWireServer, subscribed, type WireServer, welcome } from "./wire-server.ts";

const QUICK = { minMs: 2, maxMs: 20 };

async function start(options: Partial<ConnectOptions> = {}) {
  const server = await startWireServer();
  const statuses: Status[] = [];
  const client = connect({
    url: server.url,
    token: "secret",
    reconnect: QUICK,
    onStatus: (status) => statuses.push(status),
    ...options,
  });
  return {
    server,
    client,
    statuses,
    async [Symbol.asyncDispose]() {
      client.close();
      await server[Symbol.asyncDispose]();
    },
  };
}

/** Accepts the next socket and answers its subscription. */
async function serve(server: WireServer, head: number, open: unknown[] = []) {
  const wire = await server.welcomed();
  const subscribe = await wire.next();
  wire.send(subscribed("s1", head, open));
  return { wire, subscribe };
}

async function take(events: AsyncIterator<SessionEvent>, count: number): Promise<number[]> {
  const seen: number[] = [];
  while (seen.length < count) {
    const { done, value } = await events.next();
    if (done === true) break;
    seen.push(value.seq);
  }
  return seen;
}

verifies(
  "CLIENT-RESUME",
  "a cut line is taken up at the last number, and what is sent again is shown once",
  async () => {
    await using world = await start();
    const events = world.client.session("s1").events();
    const { wire, subscribe } = await serve(world.server, 2);
    expect(subscribe).toEqual({ type: "subscribe", session_id: "s1", after: 0, previews: true });
    for (const seq of [1, 2, 5]) wire.send(event("s1", seq, "assistant", {}));
    expect(await take(events, 3)).toEqual([1, 2, 5]);
    wire.cut();
    const again = await serve(world.server, 6);
    expect(again.subscribe).toMatchObject({ after: 5 });
    for (const seq of [5, 6, 9]) again.wire.send(event("s1", seq, "assistant", {}));
    expect(await take(events, 2)).toEqual([6, 9]);
    expect(world.statuses.map((status) => status.state)).toEqual([
      "connecting",
      "open",
      "waiting",
      "connecting",
      "open",
    ]);
  },
);

test("codes 4000 to 4499 and plain losses come back, 4500 to 4999 do not", async () => {
  await using world = await start();
  const events = world.client.session("s1").events();
  for (const code of [4001, 4002, 4499, 1011, 1000]) (await serve(world.server, 0)).wire.close(code);
  const { wire } = await serve(world.server, 0);
  wire.send({ type: "error", code: "expired", message: "The key was revoked.", retry: false });
  wire.close(4501);
  await expect(events.next()).rejects.toMatchObject({ code: "expired", message: "The key was revoked." });
  expect(world.client.status().state).toBe("closed");
  await expect(world.client.session("s1").interrupt()).rejects.toMatchObject({ code: "expired" });
});

test("a final close without a word is named by its code", async () => {
  await using world = await start();
  const events = world.client.session("s1").events();
  (await serve(world.server, 0)).wire.close(4503, "not for you");
  await expect(events.next()).rejects.toMatchObject({ code: "forbidden", message: "not for you" });
});

test("known bug 28b: two silent heartbeats drop the line; pongs keep it", async () => {
  await using world = await start();
  world.client.session("s1").events();
  const wire = await world.server.welcomed(20);
  await wire.next();
  for (let beat = 0; beat < 4; beat++) {
    await wire.ping();
    wire.send({ type: "pong" });
  }
  await wire.ping();
  await wire.ping();
  await wire.closed;
  const { subscribe } = await serve(world.server, 0);
  expect(subscribe).toMatchObject({ type: "subscribe" });
});

verifies(
  "CLIENT-RESEND",
  "a command that was not acknowledged goes out again under its id, after the subscription",
  async () => {
    await using world = await start();
    const sent = world.client.session("s1").send("hello");
    const first = await serve(world.server, 3);
    const command = await first.wire.next();
    expect(command).toMatchObject({
      type: "command",
      session_id: "s1",
      event_type: "query",
      payload: { text: "hello", uuid: sent.turnId },
    });
    first.wire.cut();
    const second = await serve(world.server, 3);
    expect(second.subscribe).toMatchObject({ after: 3 });
    expect(await second.wire.next()).toEqual(command);
    // It was applied before the cut, and its turn is over already: both lie behind the head that was known.
    second.wire.send({ type: "ack", id: command["id"], seq: 4, duplicate: true });
    expect(await sent.accepted).toEqual({ seq: 4, duplicate: true });
    second.wire.send(
      event(
        "s1",
        5,
        "result",
        { type: "result", subtype: "success", is_error: false, result: "hi" },
        { turn_id: sent.turnId },
      ),
    );
    second.wire.send(event("s1", 6, "turn.completed", { turn_id: sent.turnId, stop_reason: "end_turn" }));
    expect(await sent).toMatchObject({ turnId: sent.turnId, outcome: "completed", reason: "end_turn", text: "hi" });
  },
);

test("a message that an earlier program sent under the same id is looked up from its place in the log", async () => {
  await using world = await start();
  const id = "7f0c7d2e-8c6b-4f6f-9a62-0d7b6f0a2b11";
  const sent = world.client.session("s1").send("hello", { id });
  expect(sent.turnId).toBe(id);
  const { wire } = await serve(world.server, 90);
  await wire.next();
  wire.send({ type: "ack", id, seq: 40, duplicate: true });
  expect(await wire.next()).toMatchObject({ type: "subscribe", after: 39 });
  wire.send(subscribed("s1", 90));
  wire.send(event("s1", 50, "turn.failed", { turn_id: id, reason: "agent_exited", message: "gone" }));
  expect(await sent).toMatchObject({ outcome: "failed", reason: "agent_exited", result: undefined });
});

test("a draining server's refusal is no refusal: the next server is asked under the same id", async () => {
  await using world = await start();
  const sent = world.client.session("s1").send("hello");
  const first = await serve(world.server, 0);
  const command = await first.wire.next();
  first.wire.send({
    type: "error",
    id: command["id"],
    session_id: "s1",
    code: "draining",
    message: "later",
    retry: true,
  });
  first.wire.close(4002);
  const second = await serve(world.server, 0);
  expect(await second.wire.next()).toEqual(command);
  second.wire.send({
    type: "error",
    id: command["id"],
    session_id: "s1",
    code: "session_ended",
    message: "ended",
    retry: false,
  });
  await expect(sent).rejects.toMatchObject({ code: "session_ended" });
  await expect(sent.accepted).rejects.toBeInstanceOf(PatchbayError);
});

test("what was too large is refused, not sent for ever; the rest goes on", async () => {
  await using world = await start();
  const session = world.client.session("s1");
  const events = session.events();
  const { wire } = await serve(world.server, 0);
  wire.send(event("s1", 1, "assistant", {}));
  await take(events, 1);
  const large = session.send("x".repeat(5000));
  const small = session.send("y");
  expect([await wire.next(), await wire.next()]).toMatchObject([
    { payload: { text: "x".repeat(5000) } },
    { payload: { text: "y" } },
  ]);
  wire.close(1009);
  await expect(large).rejects.toMatchObject({ code: "too_large" });
  const again = await serve(world.server, 0);
  expect(await again.wire.next()).toMatchObject({ payload: { text: "y", uuid: small.turnId } });
});

verifies("CLIENT-TURNS", "each send resolves with its own turn, also when it was folded into another", async () => {
  await using world = await start();
  const session = world.client.session("s1");
  const first = session.send("one");
  const second = session.send("two", { delivery: "at_once" });
  const { wire } = await serve(world.server, 0);
  const commands = [await wire.next(), await wire.next()];
  expect(commands[1]).toMatchObject({ delivery: "at_once" });
  commands.forEach((command, index) => void wire.send({ type: "ack", id: command["id"], seq: index + 1 }));
  wire.send(
    event(
      "s1",
      3,
      "result",
      { type: "result", subtype: "success", is_error: false, result: "agent's own" },
      { turn_id: "other" },
    ),
  );
  wire.send(event("s1", 4, "turn.completed", { turn_id: "other", stop_reason: "end_turn" }));
  wire.send(
    event("s1", 5, "turn.completed", { turn_id: second.turnId, stop_reason: "end_turn", folded_into: first.turnId }),
  );
  wire.send(
    event(
      "s1",
      6,
      "result",
      { type: "result", subtype: "success", is_error: false, result: "both" },
      { turn_id: first.turnId },
    ),
  );
  wire.send(event("s1", 7, "turn.completed", { turn_id: first.turnId, stop_reason: "interrupted" }));
  expect(await first).toMatchObject({ turnId: first.turnId, text: "both", reason: "interrupted" });
  expect(await second).toMatchObject({ turnId: second.turnId, text: "both", reason: "interrupted" });
});

test("without a result the text is the agent's last message, not a subagent's", async () => {
  await using world = await start();
  const sent = world.client.session("s1").send("one");
  const { wire } = await serve(world.server, 0);
  wire.send({ type: "ack", id: (await wire.next())["id"], seq: 1 });
  const said = (text: string, parent: string | null) => ({
    type: "assistant",
    message: { id: "m", content: [{ type: "text", text }] },
    parent_tool_use_id: parent,
  });
  wire.send(event("s1", 2, "assistant", said("mine", null), { turn_id: sent.turnId }));
  wire.send(event("s1", 3, "assistant", said("sub", "toolu_1"), { turn_id: sent.turnId }));
  wire.send(event("s1", 4, "turn.failed", { turn_id: sent.turnId, reason: "agent_exited", message: "" }));
  expect(await sent).toMatchObject({ outcome: "failed", text: "mine", result: undefined });
});

test("waiting can be given up, and ends with the session or the client", async () => {
  await using world = await start();
  const session = world.client.session("s1");
  const controller = new AbortController();
  const abandoned = session.send("one", { signal: controller.signal });
  const lost = session.send("two");
  const { wire } = await serve(world.server, 0);
  await wire.next();
  controller.abort(new Error("enough"));
  await expect(abandoned).rejects.toThrow("enough");
  wire.send({ type: "ended", session_id: "s1" });
  await expect(lost).rejects.toMatchObject({ code: "session_ended" });
  const closing = session.send("three");
  world.client.close();
  await expect(closing).rejects.toMatchObject({ code: "closed" });
});

const open = (id: string, seq: number, input: unknown = { command: "ls" }) => ({
  request_id: id,
  kind: "permission",
  subtype: "can_use_tool",
  seq,
  opened_at_ms: 1,
  request: { subtype: "can_use_tool", tool_name: "Bash", input },
});

verifies(
  "CLIENT-REQUESTS",
  "each open request is offered once: from the list, or from beyond its head, never from replay",
  async () => {
    await using world = await start();
    const session = world.client.session("s1");
    const events = session.events();
    const offered: IncomingRequest[] = [];
    session.onRequest((request) => void offered.push(request));
    const { wire } = await serve(world.server, 10, [open("r2", 8)]);
    wire.send(event("s1", 4, "request.opened", open("r1", 4)));
    wire.send(event("s1", 5, "request.resolved", { request_id: "r1", outcome: "answered" }));
    wire.send(event("s1", 8, "request.opened", open("r2", 8)));
    wire.send(event("s1", 11, "request.opened", open("r3", 11)));
    await take(events, 4);
    expect(offered.map((request) => request.request_id)).toEqual(["r2", "r3"]);
    wire.cut();
    const again = await serve(world.server, 15, [open("r3", 11), open("r4", 13)]);
    again.wire.send(event("s1", 12, "request.resolved", { request_id: "r2", outcome: "cancelled" }));
    again.wire.send(event("s1", 13, "request.opened", open("r4", 13)));
    // Opened and settled while nobody was connected.
    again.wire.send(event("s1", 14, "request.opened", open("r5", 14)));
    again.wire.send(event("s1", 15, "request.resolved", { request_id: "r5", outcome: "answered" }));
    await take(events, 4);
    expect(offered.map((request) => request.request_id)).toEqual(["r2", "r3", "r4"]);
    expect(offered.map((request) => request.signal.aborted)).toEqual([true, false, false]);
    expect(offered[0]?.signal.reason).toEqual({ outcome: "cancelled" });
  },
);

verifies("CLIENT-REQUESTS", "answers are whole, and a later answerer is told who decided", async () => {
  await using world = await start();
  const session = world.client.session("s1");
  const asked = Promise.withResolvers<IncomingRequest>();
  session.onRequest((request) => asked.resolve(request));
  const { wire } = await serve(world.server, 10, [open("r1", 8, { command: "ls", questions: [] })]);
  const request = await asked.promise;
  expect(request).toMatchObject({ toolName: "Bash", kind: "permission", input: { command: "ls" } });
  const answers = [
    request.allow(),
    request.deny("no"),
    request.answer({ "Which?": ["a", "b"] }),
    request.fail("broken"),
  ];
  const commands = [await wire.next(), await wire.next(), await wire.next(), await wire.next()];
  const bodies = commands.map((command) => (command["payload"] as { response: unknown }).response);
  expect(bodies).toEqual([
    {
      subtype: "success",
      request_id: "r1",
      response: { behavior: "allow", updatedInput: { command: "ls", questions: [] } },
    },
    { subtype: "success", request_id: "r1", response: { behavior: "deny", message: "no" } },
    {
      subtype: "success",
      request_id: "r1",
      response: { behavior: "allow", updatedInput: { command: "ls", questions: [], answers: { "Which?": "a, b" } } },
    },
    { subtype: "error", request_id: "r1", error: "broken" },
  ]);
  const refuse = (index: number, code: string, details: unknown) =>
    wire.send({
      type: "error",
      id: commands[index]?.["id"],
      session_id: "s1",
      code,
      message: "no",
      retry: false,
      details,
    });
  wire.send({ type: "ack", id: commands[0]?.["id"], seq: 12 });
  refuse(1, "request_already_answered", { decided_by: "k2" });
  refuse(2, "request_settled", { outcome: "lost" });
  refuse(3, "invalid_answer", { field: "x" });
  expect(await answers[0]).toEqual({ outcome: "accepted", seq: 12 });
  expect(await answers[1]).toEqual({ outcome: "already_answered", decidedBy: "k2", details: { decided_by: "k2" } });
  expect(await answers[2]).toEqual({ outcome: "settled", details: { outcome: "lost" } });
  await expect(answers[3]).rejects.toMatchObject({ code: "invalid_answer" });
});

test("what a handler throws is reported, and a stopped handler is asked no more", async () => {
  const errors: unknown[] = [];
  await using world = await start({ onError: (error) => errors.push(error) });
  const session = world.client.session("s1");
  const events = session.events({ after: "head" });
  const stop = session.onRequest(() => {
    throw new Error("handler");
  });
  const { wire } = await serve(world.server, 0);
  wire.send(event("s1", 1, "request.opened", open("r1", 1)));
  await take(events, 1);
  await expect.poll(() => errors).toEqual([new Error("handler")]);
  stop();
  wire.send(event("s1", 2, "request.opened", open("r2", 2)));
  await take(events, 1);
  expect(errors).toHaveLength(1);
});

test("control resolves with the CLI's own answer, or throws its error", async () => {
  await using world = await start();
  const session = world.client.session("s1");
  const mode = session.setPermissionMode("plan");
  const bad = expect(session.control({ subtype: "nonsense" })).rejects.toMatchObject({
    code: "agent_refused",
    message: "Unsupported",
  });
  const { wire } = await serve(world.server, 0);
  const commands = [await wire.next(), await wire.next()];
  expect(commands[0]).toMatchObject({
    event_type: "control_request",
    payload: { request_id: commands[0]?.["id"], request: { subtype: "set_permission_mode", mode: "plan" } },
  });
  commands.forEach((command, index) => void wire.send({ type: "ack", id: command["id"], seq: index + 1 }));
  const answer = (index: number, response: object) =>
    event(
      "s1",
      4 - index,
      "control_response",
      { type: "control_response", response },
      { command_id: commands[index]?.["id"] },
    );
  wire.send(answer(1, { subtype: "error", request_id: "x", error: "Unsupported" }));
  wire.send(answer(0, { subtype: "success", request_id: "y", response: { mode: "plan" } }));
  expect(await mode).toEqual({ mode: "plan" });
  await bad;
});

test("one socket carries any number of sessions, and watch", async () => {
  await using world = await start();
  const watching = world.client.watch();
  const a = world.client.session("a").events();
  const b = world.client.session("b").events({ after: 4, previews: false });
  const wire = await world.server.welcomed();
  const frames = [await wire.next(), await wire.next(), await wire.next()];
  expect(frames).toContainEqual({ type: "subscribe", session_id: "a", after: 0, previews: true });
  expect(frames).toContainEqual({ type: "subscribe", session_id: "b", after: 4, previews: false });
  expect(frames).toContainEqual({ type: "watch" });
  wire.send(subscribed("b", 5));
  wire.send(subscribed("a", 0));
  wire.send(event("b", 5, "assistant", {}));
  wire.send(event("a", 1, "assistant", {}));
  wire.send({ type: "session", id: "a", state: "idle" });
  expect(await take(b, 1)).toEqual([5]);
  expect(await take(a, 1)).toEqual([1]);
  expect(await watching.next()).toEqual({ done: false, value: { id: "a", state: "idle" } });
});

test("the end of a session ends its loop; a gap is told or thrown, never passed over", async () => {
  await using world = await start();
  const session = world.client.session("s1");
  const gaps: number[] = [];
  const told = session.events({ onGap: (first) => gaps.push(first) });
  const thrown = session.events();
  const { wire } = await serve(world.server, 9);
  wire.send({ type: "gap", session_id: "s1", first_available: 7 });
  wire.send(event("s1", 7, "assistant", {}));
  await expect(thrown.next()).rejects.toMatchObject({ code: "history_gone", details: { first_available: 7 } });
  expect(await take(told, 1)).toEqual([7]);
  expect(gaps).toEqual([7]);
  wire.send({ type: "ended", session_id: "s1" });
  expect(await told.next()).toEqual({ done: true, value: undefined });
});

test("a refused subscription fails its loop only", async () => {
  await using world = await start();
  const missing = world.client.session("nope").events();
  const wire = await world.server.welcomed();
  await wire.next();
  wire.send({ type: "error", session_id: "nope", code: "not_found", message: "Nothing here.", retry: false });
  await expect(missing.next()).rejects.toMatchObject({ code: "not_found" });
  expect(world.client.status().state).toBe("open");
});

test("a refusal that the browser hides is found out by a plain call, and ends the tries", async () => {
  await using world = await start();
  world.server.answer(() => ({
    status: 401,
    body: { error: { code: "unauthenticated", message: "No valid key.", retry: false } },
  }));
  const events = world.client.session("s1").events();
  (await world.server.connection()).cut();
  await expect(events.next()).rejects.toMatchObject({ code: "unauthenticated", message: "No valid key." });
});

test("a ticket goes into the address, once; a function fetches another", async () => {
  let count = 0;
  await using world = await start({ token: "secret", ticket: () => `t${++count}` });
  world.client.session("s1").events();
  const first = await world.server.connection();
  expect(first.url).toBe("/v1/ws?ticket=t1");
  first.send(welcome());
  expect(await first.next()).toMatchObject({ type: "subscribe" });
  first.cut();
  expect((await world.server.connection()).url).toBe("/v1/ws?ticket=t2");
});

test("a ticket that is used up ends the tries, a server that is away does not", async () => {
  await using world = await start({ ticket: "t1" });
  const events = world.client.session("s1").events();
  // Not there: its health answers nothing of use.
  world.server.answer(() => ({ status: 503, body: "" }));
  (await world.server.connection()).cut();
  const second = await world.server.connection();
  world.server.answer(() => ({ status: 200, body: { status: "ok" } }));
  second.cut();
  await expect(events.next()).rejects.toMatchObject({ code: "unauthenticated" });
});

test("a loop that is left says unsubscribe, and unknown frames are ignored", async () => {
  await using world = await start();
  const events = world.client.session("s1").events();
  const { wire } = await serve(world.server, 0);
  wire.send({ type: "brand_new", session_id: "s1" });
  wire.send(event("s1", 1, "assistant", {}));
  for await (const one of events) {
    expect(one.seq).toBe(1);
    break;
  }
  expect(await wire.next()).toEqual({ type: "unsubscribe", session_id: "s1" });
});

test("a fork is asked for once, and comes as a handle that works", async () => {
  await using world = await start();
  let calls = 0;
  world.server.answer(() =>
    ++calls === 1 ? { status: 502, body: "" } : { status: 201, body: { id: "s9", state: "hibernated" } },
  );
  const fork = await world.client.session("s1").fork({ at: "u1", name: "second" });
  expect(fork.id).toBe("s9");
  const [first, second] = world.server.calls;
  expect(first).toMatchObject({ method: "POST", path: "/v1/sessions/s1/fork" });
  expect(second?.headers["idempotency-key"]).toBe(first?.headers["idempotency-key"]);
  const events = fork.events();
  const wire = await world.server.welcomed();
  expect(await wire.next()).toMatchObject({ type: "subscribe", session_id: "s9" });
  wire.send(subscribed("s9", 0, []));
  wire.send(event("s9", 1, "session.forked", { session_id: "s1", at: "u1" }));
  for await (const one of events) {
    expect(one.seq).toBe(1);
    break;
  }
});

test("creating is tried again under one Idempotency-Key", async () => {
  await using world = await start();
  let calls = 0;
  world.server.answer(() =>
    ++calls === 1 ? { status: 502, body: "" } : { status: 201, body: { id: "s9", state: "idle" } },
  );
  const session = await world.client.createSession({ name: "x" });
  expect(session.id).toBe("s9");
  const keys = world.server.calls.map((call) => call.headers["idempotency-key"]);
  expect(keys).toHaveLength(2);
  expect(new Set(keys).size).toBe(1);
  expect(world.server.calls[0]?.headers.authorization).toBe("Bearer secret");
});
