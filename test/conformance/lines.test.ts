import { expect } from "vitest";
import { watchEverywhere } from "../kit/everywhere.ts";
import { startServer } from "../kit/server.ts";
import { verifies } from "../kit/verifies.ts";

const MEGABYTE = 1024 * 1024;
const LIMIT_BYTES = 16 * MEGABYTE;
/** `{"type":"x","text":""}` is how the fake agent dresses a `!raw` line. */
const lineOf = (inner: string): string => `{"type":"x-unknown","text":"${inner}"}`;

/** Inner texts of JSON strings that have gone wrong somewhere before. */
const AWKWARD: Readonly<Record<string, string>> = {
  "U+2028, U+2029, NEL and BOM raw": "a\u2028b\u2029c\u0085d\ufeffe",
  "lone surrogate escapes": String.raw`\ud83d and \ude00 apart, \ud83d\ude00 together`,
  "NUL and control escapes": String.raw`\u0000\u001f\b\f\n\r\t`,
  "needless escapes and an escaped slash": String.raw`\u0041\/`,
  "astral characters": "😀👩‍👩‍👧‍👦𝒳",
  "what looks like our own envelope": String.raw`\",\"payload\":{\"seq\":1}}\n\ndata: x\n\n`,
};

verifies("P4-BYTES", "awkward lines and numbers of any type come out unchanged everywhere", async () => {
  await using server = await startServer();
  const { id } = await server.session();
  using seen = await watchEverywhere(server, id);
  const lines = [
    ...Object.values(AWKWARD).map(lineOf),
    // White space, key order, repeated keys, numbers that a parser would round, an unknown type, a null prototype name.
    '{ "type" : "x-unknown" ,\t"n":1.0, "n":1e400,"big":123456789012345678901234567890,"__proto__":{"a":1},"":[] }',
    '{"type":"x-unknown","deep":[[[[[[[[[[[[{"a":{"b":{"c":null}}}]]]]]]]]]]]]}',
    '{"no":"type"}',
  ];
  await server.call("POST", `/v1/sessions/${id}/turns`, {
    body: { text: `!raw ${JSON.stringify(lines)}`, wait_s: 20 },
  });
  const completed = await seen.socket.next("event", (event) => event.event_type === "turn.completed");
  const found = await seen.payloads(completed.seq);
  for (const [way, payloads] of Object.entries(found)) {
    expect(
      payloads.filter((payload) => lines.includes(payload)),
      way,
    ).toEqual(lines);
  }
});

verifies("P4-BYTES", "lines around 64 KiB and one of 12 MB come out whole everywhere", async () => {
  await using server = await startServer({ options: { agentLineLimitBytes: LIMIT_BYTES } });
  const { id } = await server.session();
  using seen = await watchEverywhere(server, id);
  const sizes = [65_534, 65_535, 65_536, 65_537, 131_071, 131_072, 131_073, 1_400_000, 12_000_000];
  let last = 0;
  for (const size of sizes) {
    const { body } = await server.call("POST", `/v1/sessions/${id}/turns`, {
      body: { text: `!line ${size}`, wait_s: 30 },
    });
    expect(body.outcome).toBe("completed");
    const completed = await seen.socket.next(
      "event",
      (event) => event.turn_id === body.turn_id && event.event_type === "turn.completed",
    );
    last = completed.seq;
  }
  const found = await seen.payloads(last);
  for (const [way, payloads] of Object.entries(found)) {
    const long = payloads.filter((payload) => payload.includes("zzz"));
    expect(
      long.map((payload) => payload.length),
      way,
    ).toEqual(sizes);
    expect(
      long.every((payload) =>
        /^\{"type":"assistant".*"text":"z+"\}.*\}$/.test(payload.slice(0, 1_000) + payload.slice(-1_000)),
      ),
      way,
    ).toBe(true);
  }
});

verifies(
  "AGENT-LINE-LIMIT",
  "known bug 11: a line over the limit is dropped and said so, and the next line still arrives",
  async () => {
    await using server = await startServer({ options: { agentLineLimitBytes: LIMIT_BYTES } });
    const { id } = await server.session();
    using seen = await watchEverywhere(server, id);
    const say = async (text: string) =>
      (await server.call("POST", `/v1/sessions/${id}/turns`, { body: { text, wait_s: 60 } })).body;
    expect(await say(`!line ${LIMIT_BYTES}`)).toMatchObject({ outcome: "completed" });
    expect(await say(`!line ${LIMIT_BYTES + 1}`)).toMatchObject({ outcome: "completed", result: { result: "long" } });
    const { payload } = await seen.socket.next("event", (event) => event.event_type === "agent.line_dropped");
    expect(payload).toEqual({ bytes: LIMIT_BYTES + 1, limit_bytes: LIMIT_BYTES });
    expect(await say("and on")).toMatchObject({ outcome: "completed", result: { result: "echo: and on" } });
    const long = seen.live().filter((event) => event.payload.length > MEGABYTE);
    expect(long.map((event) => event.payload.length)).toEqual([LIMIT_BYTES]);
  },
);

verifies(
  "AGENT-NOISE",
  "invalid UTF-8, plain text and CR in the agent's output reach clients as valid JSON, with the turn intact",
  async () => {
    await using server = await startServer();
    const { id } = await server.session();
    using seen = await watchEverywhere(server, id);
    for (const text of ["!invalid-utf8", "!noise", "!cr", "!inner-cr"]) {
      const { body } = await server.call("POST", `/v1/sessions/${id}/turns`, { body: { text, wait_s: 20 } });
      expect(body, text).toMatchObject({ outcome: "completed" });
    }
    const { body: last } = await server.call("POST", `/v1/sessions/${id}/turns`, {
      body: { text: "last", wait_s: 20 },
    });
    const completed = await seen.socket.next(
      "event",
      (event) => event.turn_id === last.turn_id && event.event_type === "turn.completed",
    );
    const logs = seen.socket.events(id).filter((event) => event.event_type === "agent.log");
    const broken = Buffer.from([...Buffer.from('{"type":"assistant","text":"'), 0xff, ...Buffer.from('"}')]);
    expect(logs.map(({ payload }) => payload)).toEqual([
      { stream: "stdout", base64: broken.toString("base64") },
      { stream: "stdout", text: "just words" },
      { stream: "stdout", text: '{"type":"assistant",\r"text":"white space"}' },
    ]);
    const found = await seen.payloads(completed.seq);
    for (const [way, payloads] of Object.entries(found)) {
      expect(payloads, way).toContain('{"type":"assistant","text":"carriage return follows"}');
    }
  },
);
