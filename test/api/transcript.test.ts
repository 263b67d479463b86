import { randomUUID } from "node:crypto";
import { expect, test } from "vitest";
import { createPipeOrder, type PipeOrder } from "../../src/api/transcript/order.ts";
import { redact } from "../../src/api/transcript/redact.ts";
import { spliceEnvelope } from "../../src/log/envelope.ts";
import type { LogEvent } from "../../src/log/port.ts";
import type { EventHead, Origin } from "../../src/protocol/events.ts";
import { seq, sessionId } from "../../src/protocol/ids.ts";
import { isJsonObject, stringField } from "../../src/protocol/json.ts";
import { crossed } from "../kit/fake-agent-spec.ts";
import { startServer, type TestServer } from "../kit/server.ts";
import { verifies } from "../kit/verifies.ts";

interface Line {
  readonly dir: string;
  readonly msg: unknown;
  readonly at_ms: number;
}

async function transcript(server: TestServer, id: string, query = "", key?: string): Promise<Line[]> {
  const answer = await server.call("GET", `/v1/sessions/${id}/transcript${query}`, key === undefined ? {} : { key });
  expect([answer.status, answer.headers.get("content-type")]).toEqual([200, "application/x-ndjson; charset=utf-8"]);
  return answer.text.split("\n").flatMap((line): Line[] => (line === "" ? [] : [JSON.parse(line)]));
}

/** Talks to one session as a client of the HTTP API. */
function client(server: TestServer, id: string) {
  const send = async (event_type: string, payload: unknown, more: object = {}): Promise<void> => {
    const body = { id: randomUUID(), event_type, payload, ...more };
    const answer = await server.call("POST", `/v1/sessions/${id}/commands`, { body });
    expect(answer.status, answer.text).toBe(202);
  };
  return {
    say: (text: string, more: { uuid?: string; delivery?: string } = {}) => {
      const { uuid, ...rest } = more;
      return send("query", { text, ...(uuid !== undefined && { uuid }) }, rest);
    },
    control: (subtype: string, more: object = {}) =>
      send("control_request", { request_id: randomUUID(), request: { subtype, ...more } }),
    answer: (request_id: string, response: object) =>
      send("control_response", { response: { subtype: "success", request_id, response } }),
    turn: async (text: string) =>
      (await server.call("POST", `/v1/sessions/${id}/turns`, { body: { text, wait_s: 30 } })).body,
  };
}

const isBrokers = (message: unknown): boolean =>
  isJsonObject(message) && (stringField(message, "request_id") ?? "").startsWith("broker-");
const isPreview = (message: unknown): boolean => isJsonObject(message) && message.type === "stream_event";
const messages = (lines: readonly Line[], dir: string): unknown[] =>
  lines.filter((line) => line.dir === dir).map(({ msg }) => msg);
const textsOf = (sent: readonly unknown[]): unknown[] =>
  sent.flatMap((message) => (isJsonObject(message) && isJsonObject(message.message) ? [message.message.content] : []));

/** A server whose agents record their pipes, and the records. */
async function startRecorded() {
  const server = await startServer({ behaviour: { recordsPipes: true } });
  return {
    server,
    sent: (id: string) => crossed(server.dataDir, id, "stdin").filter((message) => !isBrokers(message)),
    received: (id: string) => crossed(server.dataDir, id, "stdout").filter((message) => !isPreview(message)),
    [Symbol.asyncDispose]: () => server[Symbol.asyncDispose](),
  };
}

verifies(
  "TRANSCRIPT",
  "it is what crossed the agent's pipes, line by line in order: starts, queues, withdrawals, deaths",
  async () => {
    await using recorded = await startRecorded();
    const { server } = recorded;
    const { id } = await server.session();
    using socket = await server.socket();
    socket.send({ type: "subscribe", session_id: id });
    const { say, control, answer, turn } = client(server, id);
    const withdrawn = randomUUID();
    const ended = (turnId: string) =>
      socket.next(
        "event",
        (frame) =>
          frame.event_type.startsWith("turn.") &&
          frame.turn_id === turnId &&
          frame.event_type !== "turn.queued" &&
          frame.event_type !== "turn.started",
      );

    // While there is no agent, and while it starts: nothing is written yet, and some of it never will be.
    await control("interrupt");
    await control("initialize");
    await control("set_model", { model: "opus" });
    await say("first");
    await say("never", { uuid: withdrawn });
    await say("at once, early", { delivery: "at_once" });
    await control("cancel_async_message", { message_uuid: withdrawn });
    await turn("second");
    // While a turn runs.
    const long = randomUUID();
    await say("!stream 40 10 10", { uuid: long });
    await socket.next("event", (frame) => frame.preview === true && frame.turn_id === long);
    const last = randomUUID();
    const gone = randomUUID();
    await say("after", { uuid: last });
    await say("at once, late", { delivery: "at_once" });
    await say("taken back", { uuid: gone });
    await control("cancel_async_message", { message_uuid: gone });
    await control("unsupported");
    await control("initialize");
    await ended(last);
    // A question, a death with a message behind it, and the next process.
    const asking = turn("!ask");
    const opened = await socket.next("event", (frame) => frame.event_type === "request.opened");
    await answer(stringField(opened.payload, "request_id") ?? "", { behavior: "deny", message: "no" });
    await asking;
    const after = randomUUID();
    await say("!kill");
    await say("after the death", { uuid: after });
    await ended(after);

    const lines = await transcript(server, id);
    const sent = messages(lines, "send");
    expect(sent).toEqual(recorded.sent(id));
    expect(textsOf(sent)).not.toEqual(expect.arrayContaining(["never"]));
    expect(textsOf(sent)).not.toEqual(expect.arrayContaining(["taken back"]));
    expect(textsOf(sent)).toEqual(
      expect.arrayContaining([
        "first",
        "at once, early",
        "second",
        "at once, late",
        "after",
        "!kill",
        "after the death",
      ]),
    );
    const received = messages(lines, "recv");
    const isAnswer = (message: unknown): boolean => isJsonObject(message) && message.type === "control_response";
    expect(received.filter((message) => !isAnswer(message))).toEqual(
      recorded.received(id).filter((message) => !isAnswer(message)),
    );
    // Answers are private and so redacted, but none is missing.
    expect(received.filter(isAnswer)).toHaveLength(recorded.received(id).filter(isAnswer).length);
    // A message stands before what the agent made of it.
    const echo = lines.findIndex(({ msg }) => isJsonObject(msg) && msg.isReplay === true && msg.uuid === last);
    const written = lines.findIndex(({ dir, msg }) => dir === "send" && isJsonObject(msg) && msg.uuid === last);
    const before = lines.findIndex(
      ({ msg }) => isJsonObject(msg) && msg.type === "result" && JSON.stringify(msg).includes(long),
    );
    expect(written).toBeLessThan(echo);
    expect(written).toBeGreaterThan(before);
    expect(lines.map(({ at_ms }) => at_ms)).toEqual(lines.map(({ at_ms }) => at_ms).toSorted((a, b) => a - b));
  },
);

verifies(
  "TRANSCRIPT",
  "account facts are redacted for everybody, and their answers left out for a viewer",
  async () => {
    await using server = await startServer();
    const { id } = await server.session();
    const { turn, control } = client(server, id);
    await turn("hello");
    await control("mcp_status", { headers: { authorization: "Bearer s3cret" } });
    await turn("again");
    const viewer = await server.key(["viewer"]);
    const all = await transcript(server, id);
    const fewer = await transcript(server, id, "", viewer.key);
    const answers = (lines: readonly Line[]) =>
      messages(lines, "recv").filter((message) => isJsonObject(message) && message.type === "control_response");
    expect(answers(all)[0]).toMatchObject({
      response: {
        response: { account: { tokenSource: "[redacted]", apiKeySource: "[redacted]" }, output_style: "default" },
      },
    });
    expect(answers(fewer)).toEqual([]);
    expect(fewer).toEqual(all.filter(({ msg }) => !answers(all).includes(msg)));
    expect(JSON.stringify([all, fewer])).not.toContain("s3cret");
  },
);

test("what is private is replaced wherever it stands, and a line too deep to look through as a whole", () => {
  const shown = (value: unknown): unknown =>
    JSON.parse(Buffer.from(redact(Buffer.from(JSON.stringify(value)))).toString());
  expect(
    shown({
      a: [{ account: { email: "a@b.c", plan: { seats: 3 }, isPaid: true } }],
      env: { TOKEN: "x" },
      email: null,
      name: "n",
    }),
  ).toEqual({
    a: [{ account: { email: "[redacted]", plan: { seats: "[redacted]" }, isPaid: true } }],
    env: { TOKEN: "[redacted]" },
    email: null,
    name: "n",
  });
  const deep = `${"[".repeat(200_000)}${"]".repeat(200_000)}`;
  expect(Buffer.from(redact(Buffer.from(deep))).toString()).toBe('"[redacted]"');
});

verifies("TRANSCRIPT", "previews are in it when asked for, as long as they are there", async () => {
  await using server = await startServer();
  const { id } = await server.session();
  using socket = await server.socket();
  socket.send({ type: "subscribe", session_id: id });
  const { say, turn } = client(server, id);
  await turn("over");
  const running = randomUUID();
  await say("!stream 300 10 10", { uuid: running });
  await socket.next("event", (frame) => frame.preview === true && frame.turn_id === running);
  const previews = (lines: readonly Line[]) => messages(lines, "recv").filter(isPreview).length;
  expect(previews(await transcript(server, id))).toBe(0);
  expect(previews(await transcript(server, id, "?previews=true"))).toBeGreaterThan(0);
  expect((await server.call("GET", `/v1/sessions/${id}/transcript?previews=1`)).body.error.code).toBe("bad_request");
});

test("a session that never had an agent has an empty transcript; one that is gone has none", async () => {
  await using server = await startServer();
  const { id } = await server.session();
  expect(await transcript(server, id)).toEqual([]);
  expect((await server.call("GET", "/v1/sessions/nobody/transcript")).body.error.code).toBe("not_found");
});

/** One event of a log, as the log has it. */
function logged(
  seqNumber: number,
  head: Partial<EventHead> & { event_type: string; origin: Origin },
  payload: object,
): LogEvent {
  const full = {
    session_id: sessionId("ses_1"),
    seq: seq(seqNumber),
    source: "key_1",
    timestamp_ms: 1_000 + seqNumber,
    ...head,
  };
  const envelope = spliceEnvelope(full, Buffer.from(JSON.stringify(payload)));
  return { seq: full.seq, eventType: full.event_type, preview: false, restricted: false, envelope, encoded: {} };
}

const sentBy = (order: PipeOrder, ...events: LogEvent[]): unknown[] =>
  [...events.flatMap((event) => order.take(event)), ...order.finish()].flatMap((crossing) =>
    "payload" in crossing && crossing.dir === "send" ? [JSON.parse(Buffer.from(crossing.payload).toString())] : [],
  );

test("the first of two approvals and what the broker answers itself were not written; what timed out was", () => {
  const command = { origin: "USER_EVENT", timestamp_ms: 5 } as const;
  const allow = logged(1, { event_type: "control_response", command_id: "c1", ...command }, { n: 1 });
  const approved = logged(2, { event_type: "request.approved", origin: "SYSTEM_EVENT", timestamp_ms: 5 }, {});
  const resolved = logged(2, { event_type: "request.resolved", origin: "SYSTEM_EVENT", timestamp_ms: 5 }, {});
  const request = { request: { subtype: "get_context_usage" } };
  // A client may choose any id; it must not be taken for the beginning of a payload.
  const command_id = '","payload":{"x":';
  const asked = logged(3, { event_type: "control_request", ...command, command_id }, request);
  const answered = (timestamp_ms: number): LogEvent =>
    logged(
      4,
      { event_type: "control_response", origin: "AGENT_EVENT", source: "broker", command_id, timestamp_ms },
      {},
    );
  const running = (): PipeOrder => {
    const order = createPipeOrder();
    order.gap();
    return order;
  };
  expect(sentBy(running(), allow, approved)).toEqual([]);
  expect(sentBy(running(), allow, resolved)).toEqual([{ n: 1 }]);
  expect(sentBy(running(), allow)).toEqual([{ n: 1 }]);
  expect(sentBy(running(), asked, answered(5))).toEqual([]);
  expect(sentBy(running(), asked, answered(120_005))).toEqual([request]);
  // Without an agent it waits for one.
  expect(sentBy(createPipeOrder(), asked)).toEqual([]);
});
