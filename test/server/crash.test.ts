import { randomUUID } from "node:crypto";
import { expect } from "vitest";
import { isGroupAlive } from "../../src/agents/process-table.ts";
import { type KillableServer, makeKillableServer, type ServerProcess } from "../kit/killable-server.ts";
import { payloadField } from "../kit/payload-field.ts";
import { seededRandom } from "../kit/seeded-random.ts";
import { openSse } from "../kit/sse-client.ts";
import { verifies } from "../kit/verifies.ts";
import type { WsClient } from "../kit/ws-client.ts";

const SEED = 20_261_130;
const ROUNDS = 5;

/** What one session has told its readers over all lives of the server. */
interface Witness {
  readonly id: string;
  /** Every number ever seen, with the envelope's text: it may never come with another. */
  readonly texts: Map<number, string>;
  readonly durable: Set<number>;
  /** Acknowledged commands. */
  readonly acks: Map<string, number>;
  /** Agents of earlier lives. */
  readonly pids: Set<number>;
}

const witness = (id: string): Witness => ({
  id,
  texts: new Map(),
  durable: new Set(),
  acks: new Map(),
  pids: new Set(),
});

/** Takes down all that a socket has received so far. */
function note(seen: Witness, socket: WsClient): void {
  for (const { text, frame } of socket.received) {
    if (frame.type !== "event" || frame.session_id !== seen.id) continue;
    const before = seen.texts.get(frame.seq);
    if (before !== undefined) expect(text, `number ${frame.seq} of ${seen.id}`).toBe(before);
    seen.texts.set(frame.seq, text);
    if (frame.preview !== true) seen.durable.add(frame.seq);
  }
}

/** Reads a session anew, from its first event on, and holds it against all that was seen before. */
async function readAgain(life: ServerProcess, seen: Witness): Promise<WsClient> {
  const socket = await life.socket({ query: `?session=${seen.id}` });
  const { head } = await socket.next("subscribed");
  expect(head).toBeGreaterThanOrEqual(Math.max(0, ...seen.texts.keys()));
  if (head > 0) await socket.next("event", (event) => event.seq === head);
  const replay = socket.events(seen.id).filter((event) => event.seq <= head);
  const numbers = replay.map((event): number => event.seq);
  expect(numbers).toEqual([...new Set(numbers)].sort((a, b) => a - b));
  expect([...seen.durable].filter((seq) => !numbers.includes(seq))).toEqual([]);
  for (const [command, seq] of seen.acks) {
    expect(replay.find((event) => event.command_id === command && event.origin === "USER_EVENT")?.seq).toBe(seq);
  }
  note(seen, socket);
  for (const pid of seen.pids) expect(isGroupAlive(pid)).toBe(false);
  return socket;
}

/** The id of the turn. */
async function send(socket: WsClient, seen: Witness, text: string): Promise<string> {
  const [id, uuid] = [randomUUID(), randomUUID()];
  const answer = await socket.command({ id, session_id: seen.id, event_type: "query", payload: { text, uuid } });
  if (answer.type !== "ack") throw new Error(`refused: ${answer.code}`);
  seen.acks.set(id, answer.seq);
  return uuid;
}

/** A message that works; after it, every turn there ever was has ended, once. Returns how many failed. */
async function sendNext(socket: WsClient, seen: Witness): Promise<number> {
  const turn = await send(socket, seen, "the next message");
  await socket.next("event", (event) => event.event_type === "turn.completed" && event.turn_id === turn);
  const events = socket.events(seen.id);
  const turns = (...types: string[]): string[] =>
    events.filter((event) => types.includes(event.event_type)).map((event) => String(event.turn_id));
  expect(turns("turn.completed", "turn.failed").toSorted()).toEqual(turns("query").toSorted());
  const failed = events.filter((event) => event.event_type === "turn.failed");
  for (const event of failed) expect(payloadField(event, "reason")).toBe("server_restarted");
  return failed.length;
}

function part(seen: Witness, socket: WsClient): void {
  note(seen, socket);
  for (const event of socket.events(seen.id)) {
    if (event.event_type === "agent.started") seen.pids.add(Number(payloadField(event, "pid")));
  }
  socket[Symbol.dispose]();
}

/** One life: everything is as it was left; the next message works; then each session is at another point when the power goes. */
async function live(server: KillableServer, sessions: Witness[], random: () => number): Promise<void> {
  const life = await server.start();
  while (sessions.length < 3) sessions.push(witness((await life.call("POST", "/v1/sessions", { body: {} })).body.id));
  const sockets = await Promise.all(
    sessions.map(async (seen) => {
      const socket = await readAgain(life, seen);
      await sendNext(socket, seen);
      return socket;
    }),
  );
  const [first, second, third] = sessions;
  const [one, two, three] = sockets;
  if (!first || !second || !third || !one || !two || !three) throw new Error("three sessions were expected");
  // The first is between turns, the second streams, the third waits for a permission with a message queued behind.
  await Promise.all([send(two, second, "!until never 40 2"), send(three, third, "!ask")]);
  const known = Math.max(...third.acks.values());
  await three.next("event", (event) => event.event_type === "request.opened" && event.seq > known);
  await send(three, third, "queued behind");
  const moment = two.events().length + Math.floor(random() * 300);
  while (two.events().length < moment) await two.next("event");
  await server.kill();
  await Promise.all(sockets.map((socket) => socket.closed));
  part(first, one);
  part(second, two);
  part(third, three);
}

verifies(
  "SESSION-RECOVER",
  "kill -9 between turns and in mid-turn, again and again: nothing seen is lost or changed, turns end once, the next message works",
  async () => {
    // The agents outlive the server: the next life has to remove them.
    await using server = makeKillableServer({}, { ignoreEof: true });
    const sessions: Witness[] = [];
    const random = seededRandom(SEED);
    for (let round = 0; round < ROUNDS; round += 1) await live(server, sessions, random);
    const life = await server.start();
    const failed = await Promise.all(
      sessions.map(async (seen) => {
        const socket = await readAgain(life, seen);
        const count = await sendNext(socket, seen);
        part(seen, socket);
        return count;
      }),
    );
    // Only what the agent had in hand is lost with it: what was queued behind is run by the next one.
    expect(failed).toEqual([0, ROUNDS, ROUNDS]);
  },
  90_000,
);

verifies(
  "DRAIN",
  "known bug 28d: SIGTERM with 20 sockets, 20 streams and a running turn: 4002, streams end, exit code 0 within 10 s",
  async () => {
    await using server = makeKillableServer();
    const life = await server.start();
    const { body: session } = await life.call("POST", "/v1/sessions", { body: {} });
    const headers = { authorization: `Bearer ${"pb_testadmin_0123456789abcdefghijklmnopqrstuvwxyz"}` };
    const sockets = await Promise.all(
      Array.from({ length: 20 }, () => life.socket({ query: `?session=${session.id}` })),
    );
    const streams = await Promise.all(
      Array.from({ length: 20 }, () => openSse(`${life.url}/v1/sessions/${session.id}/events/stream`, { headers })),
    );
    await life.call("POST", `/v1/sessions/${session.id}/commands`, {
      body: { id: "stalls", event_type: "query", payload: { text: "!stall" } },
    });
    await Promise.all(sockets.map((socket) => socket.next("event", (event) => event.event_type === "stream_event")));
    const askedAt = performance.now();
    life.process.kill("SIGTERM");
    const closes = await Promise.all(sockets.map((socket) => socket.closed));
    await Promise.all(streams.map((stream) => stream.closed));
    expect(new Set(closes.map(({ code }) => code))).toEqual(new Set([4002]));
    expect(await life.exited).toEqual({ code: 0, signal: null });
    expect(performance.now() - askedAt).toBeLessThan(10_000);
    const next = await server.start();
    const turn = await next.call("POST", `/v1/sessions/${session.id}/turns`, { body: { text: "back", wait_s: 20 } });
    expect(turn.body).toMatchObject({ outcome: "completed" });
  },
);
