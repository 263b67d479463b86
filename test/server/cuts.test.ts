import { randomUUID } from "node:crypto";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect } from "vitest";
import { connect as connectClient, createView, type SessionEvent } from "../../src/client/index.ts";
import type { ServerFrame } from "../../src/protocol/frames.ts";
import { type FaultProxy, startFaultProxy } from "../kit/fault-proxy.ts";
import { payloadField } from "../kit/payload-field.ts";
import { seededRandom } from "../kit/seeded-random.ts";
import { startServer, type TestServer } from "../kit/server.ts";
import { verifies } from "../kit/verifies.ts";
import { connect, type WsClient } from "../kit/ws-client.ts";

const SEED = 20_261_130;
const CUTS = 100;
/** A cut may fall into the upgrade, `welcome`, `subscribed`, replayed or live events. */
const LONGEST_BYTES = 4_000;
const TURN = "!until stop 60 10";

type EventFrame = Extract<ServerFrame, { type: "event" }>;

async function startStream(): Promise<{ server: TestServer; proxy: FaultProxy; id: string; stop: () => void }> {
  const server = await startServer();
  const proxy = await startFaultProxy(server.broker.port);
  const { id } = await server.session({ cwd: "cuts" });
  const random = seededRandom(SEED);
  for (let cut = 0; cut < CUTS; cut += 1) proxy.cutNextAfter(1 + Math.floor(random() * LONGEST_BYTES));
  await server.call("POST", `/v1/sessions/${id}/commands`, {
    body: { id: "the-turn", event_type: "query", payload: { text: TURN } },
  });
  return { server, proxy, id, stop: () => writeFileSync(join(server.dataDir, "workspaces/default/cuts/stop"), "") };
}

/** What the server itself has: the whole log, page by page. */
async function wholeLog(server: TestServer, id: string): Promise<EventFrame[]> {
  const found: EventFrame[] = [];
  for (let after = 0; ; ) {
    const { body } = await server.call("GET", `/v1/sessions/${id}/events?after=${after}&limit=500`);
    found.push(...body.events);
    if (body.next === after || body.next >= body.head) return found;
    after = body.next;
  }
}

/** Each number as often as it was applied: a command, its echo by the agent, and the end of its turn. */
function expectAppliedOnce(log: readonly EventFrame[], turns: readonly string[]): void {
  const count = (fits: (event: EventFrame) => boolean): Map<string, number> => {
    const counts = new Map<string, number>();
    for (const event of log.filter(fits)) counts.set(event.turn_id ?? "", (counts.get(event.turn_id ?? "") ?? 0) + 1);
    return counts;
  };
  const each = new Map(turns.map((turn) => [turn, 1]));
  const only = (counts: Map<string, number>) => new Map([...counts].filter(([turn]) => each.has(turn)));
  expect(only(count((event) => event.event_type === "query"))).toEqual(each);
  expect(only(count((event) => event.echo_of !== undefined))).toEqual(each);
  expect(only(count((event) => event.event_type === "turn.completed"))).toEqual(each);
}

/** A minimal client of its own: one socket after the other, its cursor, and its unacknowledged commands. */
function createReader(id: string) {
  const events: EventFrame[] = [];
  const unacknowledged = new Map<string, unknown>();
  const acks = new Map<string, number>();
  let last = 0;

  /** Takes what the socket has received; numbers ascend within and over subscriptions. */
  function take(socket: WsClient): void {
    for (const { frame } of socket.received) {
      if (frame.type === "ack") {
        expect(acks.get(frame.id) ?? frame.seq).toBe(frame.seq);
        acks.set(frame.id, frame.seq);
        unacknowledged.delete(frame.id);
      }
      if (frame.type !== "event") continue;
      expect(frame.seq).toBeGreaterThan(last);
      last = frame.seq;
      events.push(frame);
    }
  }

  return {
    events,
    acks,
    unacknowledged,
    /** One connection until it is cut, or until `done`. */
    async read(url: string, key: string, done: (socket: WsClient) => Promise<unknown>): Promise<void> {
      const headers = { authorization: `Bearer ${key}` };
      const opening = connect(url, { query: `?session=${id}&after=${last}`, headers });
      using socket = await opening.catch(() => undefined);
      if (socket === undefined) return;
      for (const frame of unacknowledged.values()) socket.send(frame);
      await Promise.race([socket.closed, done(socket).catch(() => {})]);
      take(socket);
    },
  };
}

const textOf = (events: readonly EventFrame[], turn: string | undefined): string =>
  events
    .filter((event) => event.event_type === "stream_event" && event.turn_id === turn)
    .map(({ payload }) => payload as { event: { delta?: { text?: string } } })
    .map(({ event }) => event.delta?.text ?? "")
    .join("");

verifies(
  "P1-COMPLETE",
  "a socket cut at 100 byte positions of a streaming turn: every durable event once and in order, commands applied once, the text whole",
  async () => {
    const { server, proxy, id, stop } = await startStream();
    await using _ = server;
    await using __ = proxy;
    const reader = createReader(id);
    const turns: string[] = [];
    for (let cut = 0; cut < CUTS; cut += 1) {
      // Every other cut finds a command without its ack.
      if (cut % 2 === 0) {
        const uuid = randomUUID();
        turns.push(uuid);
        const payload = { text: `message ${cut}`, uuid };
        reader.unacknowledged.set(uuid, { type: "command", id: uuid, session_id: id, event_type: "query", payload });
      }
      await reader.read(proxy.url, server.adminKey, () => new Promise(() => {}));
    }
    expect(proxy.connections()).toBe(CUTS);
    await reader.read(proxy.url, server.adminKey, async (socket) => {
      const { head } = await socket.next("subscribed");
      await socket.next("event", (event) => event.seq > head);
      stop();
      const isLast = ({ event_type, turn_id }: EventFrame): boolean =>
        event_type === "turn.completed" && turn_id === turns.at(-1);
      await socket.next("event", isLast);
    });
    const log = await wholeLog(server, id);
    expect(reader.events.filter((event) => event.preview !== true)).toEqual(
      log.map((event) => ({ ...event, type: "event" })),
    );
    expect(reader.unacknowledged.size).toBe(0);
    expect([...reader.acks.keys()].toSorted()).toEqual(turns.toSorted());
    expectAppliedOnce(log, turns);
    // Nothing was missed while the turn ran, previews included; the complete message holds the whole text.
    const whole = payloadField(
      log.find((event) => event.event_type === "result"),
      "result",
    );
    const streamed = textOf(reader.events, log.find((event) => event.event_type === "query")?.turn_id);
    expect(streamed.length).toBeGreaterThan(CUTS * 60);
    expect(whole).toBe(streamed);
  },
  60_000,
);

verifies(
  "CLIENT-RESUME",
  "patchbay/client over a link cut 100 times in a streaming turn: each durable event once, the text whole, messages sent once",
  async () => {
    const { server, proxy, id, stop } = await startStream();
    await using _ = server;
    await using __ = proxy;
    const enough = Promise.withResolvers<void>();
    let opened = 0;
    const sent: ReturnType<typeof session.send>[] = [];
    const client = connectClient({
      url: proxy.url,
      token: server.adminKey,
      reconnect: { minMs: 1, maxMs: 5 },
      onStatus({ state }) {
        if (state !== "open") return;
        if (proxy.connections() > CUTS) return enough.resolve();
        opened += 1;
        // Handed in while nobody knows yet whether this link lasts until the ack.
        if (opened % 2 === 0) sent.push(session.send(`message ${opened}`));
      },
    });
    const session = client.session(id);
    const events: SessionEvent[] = [];
    const view = createView();
    let text = "";
    const reading = (async () => {
      for await (const event of session.events()) {
        events.push(event);
        for (const item of view.push(event)) if (item.kind === "text") text += item.text;
        if (event.event_type === "query" && event.payload.message.content === "the last") break;
      }
    })();
    await enough.promise;
    stop();
    const outcomes = await Promise.all(sent);
    expect(outcomes.length).toBeGreaterThan(10);
    expect(new Set(outcomes.map(({ outcome }) => outcome))).toEqual(new Set(["completed"]));
    const last = session.send("the last");
    await reading;
    await last;
    client.close();
    const log = await wholeLog(server, id);
    const seen = events.filter((event) => event.preview !== true);
    expect(seen).toEqual(log.slice(0, seen.length));
    expectAppliedOnce(
      log,
      outcomes.map(({ turnId }) => turnId),
    );
    const said = log.flatMap((event) => (event.event_type === "result" ? [payloadField(event, "result")] : []));
    expect(text).toBe(said.slice(0, -1).join(""));
  },
  60_000,
);
