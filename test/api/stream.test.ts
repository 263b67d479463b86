import { describe, expect, test } from "vitest";
import { ADMIN_KEY, startServer } from "../kit/server.ts";
import { openSse } from "../kit/sse-client.ts";
import { verifies } from "../kit/verifies.ts";

const headers = { authorization: `Bearer ${ADMIN_KEY}` };

describe.each([
  { version: "HTTP/1.1", http2: false },
  { version: "HTTP/2", http2: true },
])("over $version", ({ http2 }) => {
  verifies("SSE-STREAM", "a stream shows what a socket shows, and Last-Event-ID wins over after", async () => {
    await using server = await startServer();
    const { id } = await server.session();
    using socket = await server.socket({ query: `?session=${id}&previews=false` });
    const address = `${server.url}/v1/sessions/${id}/events/stream`;
    using stream = await openSse(`${address}?previews=false`, { headers, http2 });
    await server.call("POST", `/v1/sessions/${id}/turns`, { body: { text: "!inner-cr", wait_s: 20 } });
    const done = await socket.next("event", (event) => event.event_type === "turn.completed");
    await stream.until((events) => events.some((event) => Number(event.id) >= done.seq));
    const shown = socket.received.filter(({ frame }) => frame.type === "event" && frame.seq <= done.seq);
    const wanted = shown.map(({ text }) => `{${text.slice('{"type":"event",'.length)}`.replaceAll(/[\r\n]/g, " "));
    expect(stream.events.slice(0, wanted.length).map(({ data }) => data)).toEqual(wanted);
    const third = Number(stream.events[2]?.id);
    using resumed = await openSse(`${address}?after=0&previews=false`, {
      headers: { ...headers, "last-event-id": String(third) },
      http2,
    });
    const [first] = await resumed.until((events) => events.length > 0);
    expect(first?.id).toBe(stream.events[3]?.id);
    using ahead = await openSse(`${address}?after=99999`, { headers, http2 });
    expect(ahead.status).toBe(400);
    using malformed = await openSse(address, { headers: { ...headers, "last-event-id": "x" }, http2 });
    expect(malformed.status).toBe(400);
  });

  verifies("SSE-STREAM", "an ended session ends its streams, and tells them not to come back", async () => {
    await using server = await startServer();
    const { id } = await server.session({ prompt: "hello" });
    using stream = await openSse(`${server.url}/v1/sessions/${id}/events/stream`, { headers, http2 });
    await stream.until((events) => events.some(({ data }) => data.includes("turn.completed")));
    await server.call("DELETE", `/v1/sessions/${id}`);
    await stream.closed;
    expect(stream.events.at(-1)?.event).toBe("ended");
    const last = stream.events.at(-2)?.id ?? "";
    using again = await openSse(`${server.url}/v1/sessions/${id}/events/stream`, {
      headers: { ...headers, "last-event-id": last },
      http2,
    });
    expect(again.status).toBe(204);
  });

  verifies("DRAIN", "a server that stops tells sockets and streams to come back, and is gone in seconds", async () => {
    const server = await startServer();
    const { id } = await server.session();
    const sockets = [];
    const streams = [];
    for (let round = 0; round < 20; round++) {
      sockets.push(await server.socket({ query: `?session=${id}` }));
      streams.push(await openSse(`${server.url}/v1/sessions/${id}/events/stream`, { headers, http2 }));
    }
    const stuck = await server.socket();
    stuck.socket.pause();
    const waiting = server.call("POST", `/v1/sessions/${id}/turns`, { body: { text: "!stall", wait_s: 600 } });
    await sockets[0]?.next("event", (event) => event.event_type === "turn.started");
    const started = performance.now();
    const closing = server[Symbol.asyncDispose]();
    expect((await waiting).status).toBe(202);
    for (const socket of sockets) expect(await socket.closed).toEqual({ code: 4002, reason: "draining" });
    for (const stream of streams) {
      await stream.closed;
      expect(JSON.parse(stream.events.at(-1)?.data ?? "")).toMatchObject({ code: "draining", retry: true });
    }
    await closing;
    expect(performance.now() - started).toBeLessThan(12_000);
    stuck.socket.resume();
  });
});

test("while it drains, a server is not ready and takes nothing new", async () => {
  await using server = await startServer({ tuning: { api: { drainMs: 3_000 } } });
  using stuck = await server.socket();
  stuck.socket.pause();
  const closed = server.broker.close();
  const ready = await server.call("GET", "/readyz", { key: null }).catch(() => undefined);
  // Either it answers that it drains, or it does not accept any more.
  expect(ready === undefined || ready.status === 503).toBe(true);
  stuck.socket.resume();
  await closed;
});
