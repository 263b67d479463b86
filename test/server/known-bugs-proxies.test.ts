import { expect } from "vitest";
import { connect as connectClient } from "../../src/client/index.ts";
import { startImpatientProxy } from "../kit/impatient-proxy.ts";
import { payloadField } from "../kit/payload-field.ts";
import { startServer } from "../kit/server.ts";
import { openSse } from "../kit/sse-client.ts";
import { verifies } from "../kit/verifies.ts";

/** 60 s of idleness, 300 s of a request and 10 minutes of a silent tool, all 150 times as fast; so are the heartbeats of 15 s. */
const HEARTBEAT_MS = 100;
const IDLE_MS = 400;
const AGE_MS = 2000;
const SILENT_MS = 4000;

/** A stream's reader as a browser has it: comes back with the last id that it saw, until that event. */
async function readStream(url: string, key: string, last: string): Promise<{ ids: number[]; streams: number }> {
  const ids: number[] = [];
  let streams = 0;
  const isLast = ({ data }: { readonly data: string }): boolean => JSON.parse(data).event_type === last;
  for (let isOver = false; !isOver; ) {
    streams += 1;
    const headers = { authorization: `Bearer ${key}`, "last-event-id": String(ids.at(-1) ?? 0) };
    using stream = await openSse(url, { headers });
    await Promise.race([stream.closed, stream.until((events) => events.some(isLast)).catch(() => {})]);
    ids.push(...stream.events.map(({ id }) => Number(id)));
    isOver = stream.events.some(isLast);
  }
  return { ids, streams };
}

verifies(
  "SSE-STREAM",
  "known bug 28a: a proxy that cuts what is idle for a minute, and everything after five: a silent tool with an open approval loses nothing",
  async () => {
    await using server = await startServer({
      options: { heartbeatMs: HEARTBEAT_MS },
      tuning: { api: { commentMs: HEARTBEAT_MS } },
    });
    const { broker, adminKey: token } = server;
    await using proxy = await startImpatientProxy(broker.port, { idleMs: IDLE_MS, ageMs: AGE_MS });
    const { id } = await server.session();
    // For comparison: one that no proxy disturbs.
    using direct = await server.socket({ query: `?session=${id}` });
    const client = connectClient({ url: proxy.url, token, reconnect: { minMs: 20, maxMs: 100 } });
    const session = client.session(id);
    let asked = 0;
    session.onRequest(async (request) => {
      asked += 1;
      // The person is away for longer than the proxy has patience.
      await new Promise((resolve) => setTimeout(resolve, SILENT_MS));
      expect(await request.allow()).toMatchObject({ outcome: "accepted" });
    });
    const overSocket = (async () => {
      const seqs: number[] = [];
      for await (const event of session.events()) {
        seqs.push(event.seq);
        if (event.event_type === "turn.completed") break;
      }
      return seqs;
    })();
    const overStream = readStream(
      `${proxy.url}/v1/sessions/${id}/events/stream?previews=true`,
      token,
      "turn.completed",
    );
    const sent = await session.send("!ask");
    expect(sent).toMatchObject({ outcome: "completed" });
    const { ids, streams } = await overStream;
    const { seq: end } = await direct.next("event", (event) => event.event_type === "turn.completed");
    const all = direct.events(id).filter(({ seq }) => seq <= end);
    const numbers = all.map(({ seq }) => seq);
    expect(await overSocket).toEqual(numbers);
    expect(ids.filter((seq) => seq <= end)).toEqual(numbers);
    expect(asked).toBe(1);
    const told = all.filter(({ event_type }) => event_type === "request.resolved");
    expect(told.map((event) => payloadField(event, "outcome"))).toEqual(["answered"]);
    // Age is what cut them, twice each at least; heartbeats and comments kept them from idleness.
    expect(streams).toBeGreaterThanOrEqual(2);
    expect(proxy.cuts().old).toBeGreaterThanOrEqual(3);
    expect(proxy.cuts().idle).toBe(0);
    client.close();
  },
);
