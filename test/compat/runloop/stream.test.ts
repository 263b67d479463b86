import { expect, test } from "vitest";
import { mountedAxon, ofType, payloadOf, runloopClient, say, watchAxon } from "../../kit/runloop-client.ts";
import { ADMIN_KEY, startServer } from "../../kit/server.ts";
import { openSse } from "../../kit/sse-client.ts";
import { verifies } from "../../kit/verifies.ts";

const headers = { authorization: `Bearer ${ADMIN_KEY}` };

verifies(
  "RUNLOOP-A5",
  "sequences ascend, and total_count is the last event that a replay delivers, previews or not",
  async () => {
    await using server = await startServer();
    const client = runloopClient(server.url);
    const axon = await client.axons.create({});
    await client.devboxes.createAndAwaitRunning({
      mounts: [{ type: "broker_mount", axon_id: axon.id, launch_args: ["--include-partial-messages"] }],
    });
    using live = await watchAxon(client, axon.id);
    await say(client, axon.id, "hello");
    await live.event(ofType("turn.completed"));
    await say(client, axon.id, "!stream 5 10 0");
    await live.event(
      (event) => event.event_type === "turn.completed" && event !== live.events.find(ofType("turn.completed")),
    );
    expect(live.events.some(ofType("stream_event"))).toBe(true);
    const { events, total_count } = await client.axons.events.list(axon.id, { limit: 5000 });
    expect(total_count).toBe(events[0]?.sequence);
    using replay = await watchAxon(client, axon.id);
    const last = await replay.event(({ sequence }) => sequence === total_count);
    expect(last.sequence).toBe(total_count);
    const numbers = live.events.map(({ sequence }) => sequence);
    expect(numbers).toEqual([...new Set(numbers)].sort((a, b) => a - b));
    using late = await watchAxon(client, axon.id, total_count ?? 0);
    const { sequence } = await say(client, axon.id, "again");
    expect((await late.event(() => true)).sequence).toBe(sequence);
  },
);

test("the axon shows what the session's own socket shows, event for event", async () => {
  await using server = await startServer();
  const client = runloopClient(server.url);
  const { axon } = await mountedAxon(client);
  using socket = await server.socket({ query: `?session=${axon.id}&after=0` });
  using live = await watchAxon(client, axon.id);
  await say(client, axon.id, "!ask");
  const asked = await live.event(ofType("control_request", "AGENT_EVENT"));
  const { request_id, request } = payloadOf(asked);
  const response = { behavior: "allow", updatedInput: request.input };
  const payload = { type: "control_response", response: { subtype: "success", request_id, response } };
  await socket.command({ id: "native", session_id: axon.id, event_type: "control_response", payload });
  const end = await live.event(ofType("session.state", "SYSTEM_EVENT"));
  expect(end.axon_id).toBe(axon.id);
  const done = await live.event(ofType("turn.completed"));
  await socket.next("event", ({ seq }) => seq === done.sequence);
  const own = socket.events(axon.id).filter(({ seq, echo_of }) => seq <= done.sequence && echo_of === undefined);
  const shown = live.events.filter(({ sequence }) => sequence <= done.sequence);
  expect(shown.map(({ sequence, timestamp_ms }) => [sequence, timestamp_ms])).toEqual(
    own.map(({ seq, timestamp_ms }) => [seq, timestamp_ms]),
  );
  const agents = own.filter(({ origin }) => origin === "AGENT_EVENT");
  expect(shown.filter(({ origin }) => origin === "AGENT_EVENT").map(payloadOf)).toEqual(
    agents.map((event) => event.payload),
  );
  const { events } = await client.axons.events.list(axon.id, { limit: 5000 });
  const listed = events.toReversed().filter(({ sequence }) => sequence <= done.sequence);
  expect(listed).toEqual(shown);
});

verifies("RUNLOOP-A6", "headers come before the first event, then comments, and no event: line", async () => {
  await using server = await startServer({ tuning: { api: { commentMs: 40 } } });
  const client = runloopClient(server.url);
  const { id } = await client.axons.create({});
  for (const http2 of [false, true]) {
    using stream = await openSse(`${server.url}/v1/axons/${id}/subscribe/sse`, { headers, http2 });
    expect(stream.status).toBe(200);
    expect(stream.headers["content-type"]).toMatch(/^text\/event-stream/);
    expect(stream.events).toEqual([]);
    await stream.commentsUntil(3);
    const event = { event_type: "error", origin: "EXTERNAL_EVENT", source: "x", payload: "line\nbreak" } as const;
    const { sequence } = await client.axons.publish(id, event);
    const events = await stream.until((all) => all.some(({ data }) => JSON.parse(data).sequence === sequence));
    expect(new Set(events.map((one) => one.event))).toEqual(new Set(["message"]));
    expect(stream.retryMs).toBeUndefined();
  }
});

test("readers that stop reading cost bounded memory, and one that is slow for too long is told to come back", async () => {
  await using server = await startServer({ tuning: { api: { slowReaderMs: 1_500, inFlightBytes: 64 * 1024 } } });
  const client = runloopClient(server.url);
  const { id } = await client.axons.create({});
  const readers = await Promise.all(
    Array.from({ length: 20 }, () => openSse(`${server.url}/v1/axons/${id}/subscribe/sse`, { headers })),
  );
  const held = (): number => process.memoryUsage().external + process.memoryUsage().arrayBuffers;
  for (const reader of readers) reader.pause();
  const before = held();
  const payload = "x".repeat(1024 * 1024);
  for (let n = 0; n < 16; n++) {
    await client.axons.publish(id, { event_type: "big", origin: "EXTERNAL_EVENT", source: "x", payload });
  }
  // Each of them holding what it has not read would be 320 MiB, counted twice.
  expect(held() - before).toBeLessThan(160 * 1024 * 1024);
  const streams = async () =>
    /patchbay_connections\{transport="sse"\} (\d+)/.exec((await server.call("GET", "/metrics")).text)?.[1];
  await expect.poll(streams, { timeout: 15_000 }).toBe("0");
  for (const reader of readers) reader.resume();
  await Promise.all(readers.map((reader) => reader.closed));
  for (const { events } of readers) {
    const last = events.at(-1);
    expect(last?.event === "error" ? JSON.parse(last.data).code : 408).toBe(408);
    expect(events.length).toBeLessThan(17);
  }
});
