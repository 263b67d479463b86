import { Runloop } from "@runloop/api-client";
import type { AxonEventView } from "@runloop/api-client/resources/axons/axons";
import { expect } from "vitest";
import { isJsonObject } from "../../../src/protocol/json.ts";
import { createRunloopConnection } from "../../kit/runloop-connection.ts";
import { startServer, type TestServer } from "../../kit/server.ts";
import { verifies } from "../../kit/verifies.ts";

async function mounted(server: TestServer): Promise<{ api: Runloop; axonId: string }> {
  const api = new Runloop({ baseURL: server.url, bearerToken: server.adminKey });
  const { id } = await api.axons.create({});
  await api.devboxes.createAndAwaitRunning({
    mounts: [{ type: "broker_mount", axon_id: id, protocol: "claude_json" }],
  });
  return { api, axonId: id };
}

verifies(
  "RUNLOOP-CONNECTION",
  "a second connection replays 10,000 events in order, asks nobody about what was answered, and goes on live",
  async () => {
    await using server = await startServer();
    const { api, axonId } = await mounted(server);
    const first = createRunloopConnection(api, axonId);
    await first.connect();
    for (const text of ["!ask", "!lines 10000 500 0"]) {
      await first.send(text);
      for await (const _message of first.receiveAgentResponse());
    }
    expect(first.asked).toHaveLength(1);
    first.disconnect();

    const seen: AxonEventView[] = [];
    const second = createRunloopConnection(api, axonId, { onAxonEvent: (event) => seen.push(event) });
    await second.connect();
    await second.send("hello");
    const live: unknown[] = [];
    for await (const message of second.receiveAgentResponse()) live.push(message);
    expect(JSON.stringify(live)).toContain("echo: hello");
    // Nothing of the history was taken for news.
    expect(live.filter((message) => isJsonObject(message) && message["type"] === "tool_progress")).toEqual([]);
    expect(second.asked).toEqual([]);
    const numbers = seen.map((event) => event.sequence);
    expect(numbers.length).toBeGreaterThan(10_000);
    expect(numbers).toEqual([...new Set(numbers)].sort((a, b) => a - b));
    second.disconnect();
  },
  60_000,
);

verifies(
  "RUNLOOP-EVENTS",
  "pages and SSE agree with the native WebSocket, event for event, while they are written",
  async () => {
    await using server = await startServer();
    const { api, axonId } = await mounted(server);
    const socket = await server.socket({ query: `?session=${axonId}&after=0` });
    const streamed: AxonEventView[] = [];
    const stream = await api.axons.subscribeSse(axonId);
    const reading = (async () => {
      for await (const event of stream) {
        streamed.push(event);
        if (event.event_type === "turn.completed") break;
      }
    })();
    const payload = { type: "user", message: { role: "user", content: "!lines 300 10 0" }, parent_tool_use_id: null };
    await api.axons.publish(axonId, {
      event_type: "query",
      origin: "USER_EVENT",
      payload: JSON.stringify(payload),
      source: "test",
    });
    await socket.next("event", (event) => event.event_type === "turn.completed");
    await reading;
    const paged: AxonEventView[] = [];
    for (let after: string | undefined; ; ) {
      const page = await api.axons.events.list(axonId, {
        limit: 100,
        ...(after !== undefined && { starting_after: after }),
      });
      paged.push(...page.events);
      if (!page.has_more) break;
      after = String(page.events.at(-1)?.sequence);
    }
    const view = (event: AxonEventView) => ({ ...event, payload: JSON.parse(event.payload) });
    // Both have what came up to the end of the turn; what the agent said after it, only the one that was asked later.
    const last = streamed.at(-1)?.sequence ?? 0;
    const upTo = paged.toReversed().filter(({ sequence }) => sequence <= last);
    const isPreview = (event: AxonEventView): boolean => event.event_type === "stream_event";
    expect(upTo.map(view)).toEqual(streamed.filter((event) => !isPreview(event)).map(view));
    // A line that only echoes a command is shown to one of them: the other has the command.
    const native = socket.events(axonId).filter(({ seq, echo_of }) => seq <= last && echo_of === undefined);
    expect(streamed.length).toBeGreaterThan(300);
    const agent = (event: { origin: string }): boolean => event.origin === "AGENT_EVENT";
    expect(
      streamed.filter(agent).map((event) => [event.sequence, event.event_type, JSON.parse(event.payload)]),
    ).toEqual(native.filter(agent).map((event) => [event.seq, event.event_type, event.payload]));
    // The same numbers, whatever a system event is called there.
    expect(streamed.every((event) => native.some(({ seq }) => seq === event.sequence))).toBe(true);
  },
  60_000,
);
