import { setTimeout as delay } from "node:timers/promises";
import { ADMIN_KEY } from "../kit/server.ts";
import { openSse } from "../kit/sse-client.ts";
import { arrayItems, isJsonObject, word } from "./json.ts";
import type { Client, Place } from "./socket-client.ts";
import type { Command, ReaderNotes, Watched } from "./watched.ts";

const HEADERS = { authorization: `Bearer ${ADMIN_KEY}` };
/** A server that was stopped answers nobody: whoever waits for it gives up then, and asks again. */
const PATIENCE_MS = 5_000;

interface LoopOptions {
  readonly name: string;
  readonly random: () => number;
}

/** One attempt after the other until it is stopped; what fails is tried again when a server is there. */
function repeat(place: Place, random: () => number, attempt: (signal: AbortSignal) => Promise<void>): Client {
  const stopping = new AbortController();
  let current = new AbortController();
  const running = (async () => {
    while (!stopping.signal.aborted) {
      await place.up();
      current = new AbortController();
      await attempt(AbortSignal.any([stopping.signal, current.signal])).catch(() => {});
      if (!stopping.signal.aborted) await delay(2 + random() * 30);
    }
  })();
  return {
    cut: () => current.abort(),
    calm: () => {},
    async stop() {
      stopping.abort();
      await running;
    },
  };
}

/** An SSE client that comes back with Last-Event-ID. */
export function startStreamClient(place: Place, session: Watched, { name, random }: LoopOptions): Client {
  const notes = session.addReader(name);
  return repeat(place, random, async (signal) => {
    const url = `http://127.0.0.1:${place.port}/v1/sessions/${session.id}/events/stream`;
    const headers = { ...HEADERS, ...(notes.last > 0 && { "last-event-id": String(notes.last) }) };
    notes.begin();
    using stream = await openSse(url, { headers });
    let taken = 0;
    const take = (): boolean => {
      for (; taken < stream.events.length; taken += 1) {
        const item = stream.events[taken];
        if (item?.event === "gap") notes.complain(item.data);
        // Without a number it is no event of the log.
        if (item?.data.startsWith('{"session_id"') === true) notes.take(item.data);
      }
      return signal.aborted;
    };
    signal.addEventListener("abort", () => stream[Symbol.dispose]());
    // It keeps what it has seen: a new one is opened before that is much.
    await stream.until((events) => take() || events.length > 5_000).catch(() => {});
    take();
  });
}

/** Reads pages, each where the last one ended. */
export function startPagesClient(place: Place, session: Watched, { name, random }: LoopOptions): Client {
  const notes = session.addReader(name);
  return repeat(place, random, async (signal) => {
    notes.begin();
    await readPage(place, session.id, notes, signal);
    await delay(random() * 100);
  });
}

/** One page. True when it has reached the head. */
async function readPage(place: Place, id: string, notes: ReaderNotes, signal: AbortSignal): Promise<boolean> {
  const url = `http://127.0.0.1:${place.port}/v1/sessions/${id}/events?after=${notes.last}&limit=200`;
  const response = await fetch(url, {
    headers: HEADERS,
    signal: AbortSignal.any([signal, AbortSignal.timeout(PATIENCE_MS)]),
  });
  const text = await response.text();
  if (response.status !== 200) {
    if (response.status < 500) notes.complain(text.slice(0, 300));
    throw new Error(text);
  }
  const items = arrayItems(text, "events");
  for (const item of items) notes.take(item);
  return items.length === 0;
}

/** Hands in a command over HTTP until it is settled. */
export async function postCommand(place: Place, session: Watched, command: Command): Promise<void> {
  while (!command.settled) {
    await place.up();
    try {
      const response = await fetch(`http://127.0.0.1:${place.port}/v1/sessions/${session.id}/commands`, {
        method: "POST",
        headers: { ...HEADERS, "content-type": "application/json" },
        body: JSON.stringify(command.frame),
        signal: AbortSignal.timeout(PATIENCE_MS),
      });
      const body: unknown = await response.json();
      if (response.status === 202 && isJsonObject(body)) session.settle(command.frame.id, { seq: Number(body["seq"]) });
      else if (isJsonObject(body) && isJsonObject(body["error"]) && body["error"]["retry"] === false) {
        session.settle(command.frame.id, { refusal: word(body, "error", "code") });
      } else await delay(30);
    } catch {
      await delay(20);
    }
  }
}
