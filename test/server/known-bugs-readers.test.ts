import { randomUUID } from "node:crypto";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect } from "vitest";
import { seededRandom } from "../kit/seeded-random.ts";
import { startServer, type TestServer } from "../kit/server.ts";
import { verifies } from "../kit/verifies.ts";
import type { EventFrame, WsClient } from "../kit/ws-client.ts";

const SEED = 20_261_130;

async function begin(server: TestServer, id: string, text: string): Promise<string> {
  const uuid = randomUUID();
  const body = { id: uuid, event_type: "query", payload: { text, uuid } };
  const { status } = await server.call("POST", `/v1/sessions/${id}/commands`, { body });
  expect(status).toBe(202);
  return uuid;
}

verifies(
  "P1-ORDER",
  "known bug 20: coming back ten times in a stream, with subscriptions sent twice, shows nothing twice and leaves nothing out",
  async () => {
    await using server = await startServer();
    const { id } = await server.session({ cwd: "again" });
    await begin(server, id, "!until stop 40 2");
    const random = seededRandom(SEED);
    const seen = new Map<number, EventFrame>();
    let last = 0;
    const follow = async (until: (event: EventFrame) => boolean, twice: boolean): Promise<void> => {
      using socket = await server.socket();
      socket.send({ type: "subscribe", session_id: id, after: last });
      if (twice) {
        await socket.next("event");
        const at = Math.max(...socket.events(id).map(({ seq }) => seq));
        socket.send({ type: "subscribe", session_id: id, after: at });
      }
      await socket.next("event", until);
      // A second subscription replaces the first: what the first had under way may come again, but only before `subscribed`.
      const from = socket.received.findLastIndex(({ frame }) => frame.type === "subscribed");
      const numbers = socket.received.slice(from).flatMap(({ frame }) => (frame.type === "event" ? [frame.seq] : []));
      expect(numbers).toEqual([...new Set(numbers)].toSorted((a, b) => a - b));
      for (const event of socket.events(id)) seen.set(event.seq, event);
      last = Math.max(last, ...numbers);
    };
    for (let time = 0; time < 10; time += 1) {
      const enough = last + 5 + Math.floor(random() * 40);
      await follow((event) => event.seq >= enough, time % 3 === 0);
    }
    writeFileSync(join(server.dataDir, "workspaces/default/again/stop"), "");
    await follow((event) => event.event_type === "turn.completed", false);
    const shown = [...seen.values()].filter((event) => event.preview !== true).map(({ seq }) => seq);
    const log = await server.call("GET", `/v1/sessions/${id}/events?limit=1000`);
    const kept = log.body.events.map(({ seq }: EventFrame) => seq).filter((seq: number) => seq <= last);
    expect(shown.toSorted((one, other) => one - other)).toEqual(kept);
  },
);

verifies(
  "P1-COMPLETE",
  "known bug 21: 2,000 lines a second, 50 clients from random cursors at random moments: each gets every number once",
  async () => {
    await using server = await startServer();
    const { id } = await server.session();
    const random = seededRandom(SEED);
    using watcher = await server.socket({ query: `?session=${id}` });
    await begin(server, id, "!lines 2000 20 10");
    const clients: { socket: WsClient; after: number }[] = [];
    for (let client = 0; client < 50; client += 1) {
      const { seq } = await watcher.next("event", (event) => event.seq > client * 35);
      const after = Math.floor(random() * seq);
      clients.push({ socket: await server.socket({ query: `?session=${id}&after=${after}` }), after });
    }
    const { seq: end } = await watcher.next("event", (event) => event.event_type === "turn.completed");
    const all = watcher
      .events(id)
      .map(({ seq }) => seq)
      .filter((seq) => seq <= end);
    expect(all.length).toBeGreaterThan(2_000);
    for (const { socket, after } of clients) {
      await socket.next("event", (event) => event.seq === end);
      const numbers = socket
        .events(id)
        .map(({ seq }) => seq)
        .filter((seq) => seq <= end);
      expect(numbers).toEqual(all.filter((seq) => seq > after));
      socket[Symbol.dispose]();
    }
  },
);
