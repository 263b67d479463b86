import { expect, test } from "vitest";
import { runloopClient } from "../../kit/runloop-client.ts";
import { startServer } from "../../kit/server.ts";

test("a first conversation", async () => {
  await using server = await startServer();
  const client = runloopClient(server);
  const axon = await client.axons.create({ name: "first", metadata: { a: "1" } });
  expect(axon).toMatchObject({ name: "first", metadata: { a: "1" } });
  const devbox = await client.devboxes.createAndAwaitRunning({
    mounts: [{ type: "broker_mount", axon_id: axon.id, protocol: "claude_json", agent_binary: "claude" }],
  });
  console.log(devbox);
  const stream = await client.axons.subscribeSse(axon.id);
  await client.axons.publish(axon.id, {
    event_type: "query",
    origin: "USER_EVENT",
    source: "me",
    payload: JSON.stringify({ type: "user", message: { role: "user", content: "hello" }, parent_tool_use_id: null }),
  });
  for await (const event of stream) {
    console.log(event.sequence, event.origin, event.event_type, event.source, event.payload.slice(0, 100));
    if (event.event_type === "turn.completed") break;
  }
  console.log(await client.axons.events.list(axon.id, { limit: 1, include_total_count: true }));
  console.log(await client.devboxes.shutdown(devbox.id));
});
