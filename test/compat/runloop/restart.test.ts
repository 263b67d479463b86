import { mkdirSync } from "node:fs";
import { expect, test } from "vitest";
import { WebSocket } from "ws";
import { type Broker, createBroker } from "../../../src/broker.ts";
import { fakeAgentBinary } from "../../kit/fake-agent-spec.ts";
import { mountedAxon, ofType, payloadOf, runloopClient, say, watchAxon } from "../../kit/runloop-client.ts";
import { ADMIN_KEY, callServer, startServer } from "../../kit/server.ts";
import { makeTempDir } from "../../kit/temp-dir.ts";
import { verifies } from "../../kit/verifies.ts";

/** Servers one after the other on one data directory and one port. */
async function startLives() {
  const folder = makeTempDir();
  mkdirSync(`${folder.path}/agents`);
  const claudeBin = fakeAgentBinary(`${folder.path}/agents`);
  const quick = { eofMs: 500, termMs: 500 };
  const open = (port: number): Promise<Broker> =>
    createBroker(
      { port, dataDir: `${folder.path}/data`, claudeBin, adminKey: ADMIN_KEY, logLevel: "silent", runner: "inline" },
      { sessions: { stopPatience: quick, closePatience: quick } },
    );
  let broker = await open(0);
  const { port, url } = broker;
  return {
    url,
    stop: () => broker.close(),
    async start() {
      broker = await open(port);
    },
    async [Symbol.asyncDispose]() {
      await broker.close();
      folder[Symbol.dispose]();
    },
  };
}

verifies(
  "RUNLOOP-A7",
  "a subscription outlives a restart of the server without a gap, and without a new connection object",
  async () => {
    await using server = await startLives();
    const client = runloopClient(server.url);
    const { axon, devbox } = await mountedAxon(client);
    using live = await watchAxon(client, axon.id);
    await say(client, axon.id, "before");
    await live.event(ofType("turn.completed"));
    const before = await client.axons.events.list(axon.id, { limit: 1 });
    await server.stop();
    await server.start();
    const { sequence } = await say(client, axon.id, "after the restart");
    const reply = await live.event((event) => event.event_type === "assistant" && event.sequence > sequence);
    expect(reply.payload).toContain("after the restart");
    const numbers = live.events.map((event) => event.sequence);
    expect(numbers).toEqual([...new Set(numbers)].sort((a, b) => a - b));
    const { events, total_count } = await client.axons.events.list(axon.id, { limit: 5000 });
    expect(total_count).toBeGreaterThan(before.total_count ?? 0);
    const listed = events.toReversed().filter((event) => event.sequence <= reply.sequence);
    expect(live.events.filter((event) => event.sequence <= reply.sequence)).toEqual(listed);
    // Its devbox is the one it was.
    expect(await client.devboxes.retrieve(devbox.id)).toMatchObject({ status: "running", id: devbox.id });
    expect((await client.devboxes.shutdown(devbox.id)).status).toBe("shutdown");
  },
  60_000,
);

test("a repeat after a restart still gets the first one's number, and a suspended devbox stays suspended", async () => {
  await using server = await startLives();
  const client = runloopClient(server.url);
  const { axon, devbox } = await mountedAxon(client);
  const publish = () =>
    client.axons.publish(
      axon.id,
      { event_type: "push", origin: "EXTERNAL_EVENT", source: "github", payload: "{}" },
      { idempotencyKey: "stainless-node-retry-x" },
    );
  const first = await publish();
  await client.devboxes.suspend(devbox.id);
  await client.devboxes.awaitSuspended(devbox.id);
  await server.stop();
  await server.start();
  expect(await publish()).toEqual(first);
  expect((await client.devboxes.retrieve(devbox.id)).status).toBe("suspended");
  await say(client, axon.id, "still asleep?");
  expect((await client.devboxes.retrieve(devbox.id)).status).toBe("suspended");
  using live = await watchAxon(client, axon.id);
  await client.devboxes.resume(devbox.id);
  expect(payloadOf(await live.event(ofType("assistant"))).message.content[0].text).toContain("still asleep?");
}, 60_000);

verifies(
  "RUNLOOP-A1",
  "HTTP/2 with prior knowledge, HTTP/1.1 and WebSocket meet on one port, and all end when it closes",
  async () => {
    const server = await startServer();
    await using closing = server;
    const client = runloopClient(closing.url);
    const { id } = await client.axons.create({});
    expect((await callServer(server.url, "GET", `/v1/axons/${id}`)).body.id).toBe(id);
    const socket = new WebSocket(`${server.url.replace("http", "ws")}/v1/ws`, "patchbay.v1", {
      headers: { authorization: `Bearer ${ADMIN_KEY}` },
    });
    const closed = new Promise((resolve) => socket.once("close", resolve));
    await new Promise((resolve) => socket.once("open", resolve));
    using live = await watchAxon(client, id);
    expect(live.events).toEqual([]);
    const startedMs = Date.now();
    await server.broker.close();
    expect(await closed).toBe(4002);
    expect(Date.now() - startedMs).toBeLessThan(3_000);
  },
);
