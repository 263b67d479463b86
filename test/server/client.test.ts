import { expect, test } from "vitest";
import { connect, createView, type IncomingRequest, type SessionEvent } from "../../src/client/index.ts";
import { fakeAgentBinary } from "../kit/fake-agent-spec.ts";
import { startFaultProxy } from "../kit/fault-proxy.ts";
import { ADMIN_KEY, startServer } from "../kit/server.ts";
import { makeTempDir } from "../kit/temp-dir.ts";
import { verifies } from "../kit/verifies.ts";

const QUICK = { minMs: 1, maxMs: 5 };

/** Reads until the turn is over. */
async function readTurn(events: AsyncIterable<SessionEvent>, turnId: string): Promise<SessionEvent[]> {
  const seen: SessionEvent[] = [];
  for await (const event of events) {
    seen.push(event);
    if (event.origin === "SYSTEM_EVENT" && event.event_type === "turn.completed" && event.payload.turn_id === turnId)
      break;
  }
  return seen;
}

const shownText = (events: readonly SessionEvent[]): string => {
  const view = createView();
  return events.flatMap((event) => view.push(event).map((item) => (item.kind === "text" ? item.text : ""))).join("");
};

verifies(
  "CLIENT-RESUME",
  "100 cuts at random bytes during a streaming turn: every durable event once, and the text is whole",
  async () => {
    await using server = await startServer();
    await using proxy = await startFaultProxy(server.broker.port);
    const client = connect({ url: proxy.url, token: ADMIN_KEY, reconnect: QUICK });
    const session = await client.createSession();
    const events = session.events();
    const sent = session.send("!stream 1500 20 1");
    await sent.accepted;
    for (let cuts = 0; cuts < 100; cuts++) proxy.cutNextAfter(1 + Math.floor(Math.random() * 6000));
    proxy.cut();
    const seen = await readTurn(events, sent.turnId);
    const outcome = await sent;
    expect(proxy.connections()).toBeGreaterThan(100);
    const durable = seen.filter((event) => event.preview !== true).map((event) => event.seq);
    const page = await session.page({ limit: 1000 });
    expect(durable).toEqual(page.events.map((event) => event.seq).filter((seq) => seq <= (durable.at(-1) ?? 0)));
    expect(new Set(seen.map((event) => event.seq)).size).toBe(seen.length);
    expect(seen.map((event) => event.seq)).toEqual(seen.map((event) => event.seq).toSorted((a, b) => a - b));
    expect(outcome).toMatchObject({ outcome: "completed", reason: "end_turn" });
    expect(outcome.text).toHaveLength(1500 * 20);
    expect(shownText(seen)).toBe(outcome.text);
    client.close();
  },
  60_000,
);

verifies(
  "CLIENT-RESEND",
  "each message is applied once although the line is cut while it is sent",
  async () => {
    await using server = await startServer();
    await using proxy = await startFaultProxy(server.broker.port);
    const client = connect({ url: proxy.url, token: ADMIN_KEY, reconnect: QUICK });
    const session = await client.createSession();
    const sent = [];
    for (let number = 0; number < 25; number++) {
      const message = session.send(`message ${number}`);
      sent.push(message);
      proxy.cutNextAfter(200 + Math.floor(Math.random() * 1500));
      if (number % 2 === 0) proxy.cut();
      await message.accepted;
    }
    const texts = (await Promise.all(sent)).map((outcome) => outcome.text);
    expect(texts).toEqual(sent.map((_, number) => `echo: message ${number}`));
    const queries = await session.page({ eventType: "query", limit: 1000 });
    expect(queries.events.map((event) => event.turn_id)).toEqual(sent.map((message) => message.turnId));
    client.close();
  },
  60_000,
);

verifies("CLIENT-REQUESTS", "of two clients one decides and the other is told who did", async () => {
  await using server = await startServer();
  const other = await server.key(["operator"]);
  const clients = [connect({ url: server.url, token: ADMIN_KEY }), connect({ url: server.url, token: other.key })];
  const [first, second] = clients;
  const session = await first!.createSession();
  const asked = clients.map((client) => {
    const { promise, resolve } = Promise.withResolvers<IncomingRequest>();
    client.session(session.id).onRequest(resolve);
    return promise;
  });
  const sent = session.send("!ask");
  const requests = await Promise.all(asked);
  expect(requests[0]?.request_id).toBe(requests[1]?.request_id);
  const answers = await Promise.all([requests[0]?.allow(), requests[1]?.deny("no")]);
  const outcomes = answers.map((answer) => answer?.outcome).toSorted();
  expect(outcomes).toEqual(["accepted", "already_answered"]);
  const loser = answers.find((answer) => answer?.outcome === "already_answered");
  expect(loser?.outcome === "already_answered" && loser.decidedBy).toBeTruthy();
  expect((await sent).outcome).toBe("completed");
  await expect.poll(() => requests.map((request) => request.signal.aborted)).toEqual([true, true]);
  // A client that comes later is offered nothing that is settled.
  let late = 0;
  second!.session(session.id).onRequest(() => void late++);
  await second!.session(session.id).send("after").accepted;
  expect(late).toBe(0);
  for (const client of clients) client.close();
});

test("a question is answered with labels, a request that is withdrawn is let go", async () => {
  await using server = await startServer();
  const client = connect({ url: server.url, token: ADMIN_KEY });
  const session = await client.createSession();
  session.onRequest(async (request) => {
    if (request.kind !== "question") return;
    await request.answer(
      Object.fromEntries(request.questions.map((one) => [one.question, one.options[0]?.label ?? ""])),
    );
  });
  const outcome = await session.send("!question");
  expect(outcome.text).toContain('"answers"');
  const withdrawn = Promise.withResolvers<IncomingRequest>();
  session.onRequest((request) => withdrawn.resolve(request));
  const cancelled = session.send("!cancel");
  const request = await withdrawn.promise;
  if (!request.signal.aborted) await new Promise((resolve) => request.signal.addEventListener("abort", resolve));
  expect(request.signal.reason).toMatchObject({ outcome: "cancelled" });
  expect(await request.allow()).toMatchObject({ outcome: "settled" });
  await cancelled;
  client.close();
});

verifies(
  "CLIENT-TURNS",
  "several messages resolve each with its own answer, interrupts are no failures, deaths are",
  async () => {
    await using server = await startServer();
    const client = connect({ url: server.url, token: ADMIN_KEY });
    const session = await client.createSession();
    const answers = await Promise.all([session.send("one"), session.send("two"), session.send("three")]);
    expect(answers.map((answer) => answer.text)).toEqual(["echo: one", "echo: two", "echo: three"]);
    const stalled = session.send("!stall");
    const events = session.events({ after: "head" });
    await stalled.accepted;
    for await (const event of events) if (event.event_type === "turn.started") break;
    await session.interrupt();
    expect(await stalled).toMatchObject({ outcome: "completed", reason: "interrupted" });
    expect(await session.send("!die 3")).toMatchObject({ outcome: "failed", reason: "agent_exited" });
    expect(await session.send("again")).toMatchObject({ text: "echo: again" });
    expect(await session.setModel("opus")).toBeTypeOf("object");
    await expect(session.control({ subtype: "unsupported" })).rejects.toMatchObject({ name: "PatchbayError" });
    client.close();
  },
);

verifies(
  "CLIENT-RESUME",
  "a server that is restarted is come back to, and a message sent meanwhile arrives once",
  async () => {
    using folder = makeTempDir();
    const options = { dataDir: `${folder.path}/data`, claudeBin: fakeAgentBinary(folder.path) };
    const first = await startServer({ options });
    const client = connect({ url: first.url, token: ADMIN_KEY, reconnect: { minMs: 10, maxMs: 50 } });
    const session = await client.createSession();
    const events = session.events();
    expect(await session.send("before")).toMatchObject({ text: "echo: before" });
    const { port } = first.broker;
    await first[Symbol.asyncDispose]();
    const meanwhile = session.send("meanwhile");
    await using _second = await startServer({ options: { ...options, port } });
    expect(await meanwhile).toMatchObject({ text: "echo: meanwhile" });
    const seen = await readTurn(events, meanwhile.turnId);
    const seqs = seen.map((event) => event.seq);
    expect(seqs).toEqual([...new Set(seqs)].toSorted((a, b) => a - b));
    expect(seen.filter((event) => event.event_type === "query")).toHaveLength(2);
    client.close();
  },
);

test("a session's life over HTTP, watched over the socket", async () => {
  await using server = await startServer();
  const client = connect({ url: server.url, token: ADMIN_KEY });
  const session = await client.createSession({ name: "a", metadata: { team: "x" } });
  await client.createSession({ name: "b" });
  const watching = session.watch();
  expect((await watching.next()).value).toMatchObject({ id: session.id, name: "a" });
  expect((await client.sessions.list({ metadata: { team: "x" } })).sessions.map((view) => view.id)).toEqual([
    session.id,
  ]);
  expect(await session.update({ name: "c" })).toMatchObject({ name: "c" });
  await session.end();
  for await (const view of watching) if (view.state === "ended") break;
  const events = [];
  for await (const event of session.events()) events.push(event);
  expect(events.at(-1)).toMatchObject({ event_type: "session.state", payload: { state: "ended" } });
  await expect(session.send("late")).rejects.toMatchObject({ code: "session_ended" });
  await session.purge();
  await expect(session.view()).rejects.toMatchObject({ code: "not_found", retry: false });
  await expect(session.events().next()).rejects.toMatchObject({ code: "not_found" });
  client.close();
});

test("a wrong key is told at once, on the socket too", async () => {
  await using server = await startServer();
  const client = connect({ url: server.url, token: "pb_wrong" });
  await expect(client.session("s").events().next()).rejects.toMatchObject({ code: "unauthenticated", retry: false });
  await expect(client.sessions.list()).rejects.toMatchObject({ code: "unauthenticated" });
});

test("a key that is revoked ends its client for good", async () => {
  await using server = await startServer();
  const { id, key } = await server.key(["operator"]);
  const client = connect({ url: server.url, token: key });
  const session = await client.createSession();
  const events = session.events({ after: "head" });
  await session.send("x");
  await server.call("DELETE", `/v1/keys/${id}`);
  const drained = (async () => {
    for await (const _ of events);
  })();
  await expect(drained).rejects.toMatchObject({ code: "expired" });
  expect(client.status().state).toBe("closed");
});
