import { describe, expect, test } from "vitest";
import { sseEvent } from "../../src/transport/sse.ts";
import { createSseParser, openSse } from "../kit/sse-client.ts";
import { verifies } from "../kit/verifies.ts";
import { looseEvent, startLinkServer } from "./link-server.ts";

verifies(
  "SSE-STREAM",
  "a CR or LF between the tokens of a line never ends the field, and text keeps its U+2028",
  () => {
    const envelope = '{"seq":7,\r"payload":\r\n{"text":"line\u2028two\\r\\n"}}';
    const parser = createSseParser();
    parser.push(Buffer.concat([...sseEvent(looseEvent(envelope, 7))]).toString());
    expect(parser.events).toHaveLength(1);
    const [event] = parser.events;
    expect(event?.id).toBe("7");
    expect(event?.data).toBe(envelope.replaceAll(/[\r\n]/g, " "));
    expect(JSON.parse(event?.data ?? "")).toEqual(JSON.parse(envelope));
  },
);

describe.each([
  { version: "HTTP/1.1", http2: false },
  { version: "HTTP/2", http2: true },
])("over $version", ({ http2 }) => {
  verifies(
    "SSE-STREAM",
    "events arrive in order with their seq as id, after retry, with comments in between",
    async () => {
      await using server = await startLinkServer({ stream: { commentMs: 20 } });
      await server.append(server.log, 300, { bytes: 1_000 });
      using client = await openSse(server.url, { http2 });
      await client.until((events) => events.length === 300);
      await server.append(server.log, 1, { bytes: 100_000 });
      const events = await client.until((seen) => seen.length === 301);
      expect(client.headers["content-type"]).toBe("text/event-stream; charset=utf-8");
      expect(client.retryMs).toBe(1_000);
      expect(events.map(({ id }) => Number(id))).toEqual(Array.from({ length: 301 }, (_, index) => index + 1));
      expect(events.every(({ id, data }) => JSON.parse(data).seq === Number(id))).toBe(true);
      await client.commentsUntil(2);
    },
  );

  verifies(
    "P8-SLOW",
    "a stream that is not read is told so and ended, and its cursor is worth coming back with",
    async () => {
      await using server = await startLinkServer({ stream: { slowReaderMs: 200, closeMs: 200 } });
      using client = await openSse(server.url, { http2 });
      client.pause();
      for (let round = 0; round < 40; round++) await server.append(server.log, 50, { bytes: 20_000 });
      await server.streams[0]?.closed;
      client.resume();
      await client.closed;
      const ids = client.events.filter(({ event }) => event === "message").map(({ id }) => Number(id));
      expect(ids).toEqual(ids.map((_, index) => index + 1));
      expect(ids.length).toBeLessThan(2_000);
    },
  );

  test("a stream that ends says why", async () => {
    await using server = await startLinkServer();
    using client = await openSse(server.url, { http2 });
    await server.append(server.log, 1);
    await client.until((events) => events.length === 1);
    server.streams[0]?.end("ended");
    await client.closed;
    expect(client.events.at(-1)?.event).toBe("ended");
  });
});
