/**
 * A process that is killed while it works: `killed-writer.ts <data dir> hold` opens the store and waits; `… once` opens and closes it;
 * `… write <after>` appends turns of previews and durable events to one session and says on stdout, a line each, what it found and
 * promised:
 *
 *   kept <seq> <content>   found in the log, above <after>
 *   open <last> <jumped>   the log is open, numbers go on after <last>
 *   made <seq> <content>   this content is about to be handed in under this number (p… a preview, d… a durable event)
 *   ack <seq>              the append of this durable event has resolved
 *   shown <seq>            a reader was shown this number
 */
import { writeSync } from "node:fs";
import { createLogs } from "../../src/log/logs.ts";
import type { EventLog, LogEvent, OpenedLog } from "../../src/log/port.ts";
import type { Store } from "../../src/store/port.ts";
import { openStore } from "../../src/store/sqlite.ts";
import { insertSession, newEvent, readTo } from "./log-events.ts";

const pause = new Int32Array(new SharedArrayBuffer(4));
const SESSION = "killed";
const [, , dataDir = "", mode = "write", after = "0"] = process.argv;

/** Returns only when the kernel has the whole line: what was said before the kill is there to be read after it. */
function say(line: string): void {
  const bytes = Buffer.from(`${line}\n`);
  for (let written = 0; written < bytes.byteLength; ) {
    try {
      written += writeSync(1, bytes, written);
    } catch (error) {
      // The pipe is full and not a blocking one. process.stdout would queue the line in this process instead.
      if (!(error instanceof Error && "code" in error && error.code === "EAGAIN")) throw error;
      Atomics.wait(pause, 0, 0, 1);
    }
  }
}

async function tellShown(log: EventLog): Promise<void> {
  for await (const batch of log.follow(log.head(), new AbortController().signal)) {
    if (batch.kind === "events") for (const event of batch.events) say(`shown ${event.seq}`);
  }
}

/** Turns for ever, now and then a number left out, appends in flight side by side. */
async function writeTurns(log: EventLog, from: number): Promise<never> {
  let last = from;
  const make = (preview: boolean) => {
    last += Math.random() < 0.1 ? 2 : 1;
    const content = `${preview ? "p" : "d"}${process.pid}.${last}`;
    say(`made ${last} ${content}`);
    return newEvent(SESSION, last, {
      preview,
      payload: JSON.stringify({ content, fill: "x".repeat(Math.random() * 3_000) }),
    });
  };
  const append = async (count: number, edge?: "begin" | "end"): Promise<void> => {
    const events = Array.from({ length: count }, () => make(false));
    await log.append(events, [], edge);
    for (const { head } of events) say(`ack ${head.seq}`);
  };
  for (;;) {
    await append(1, "begin");
    for (let message = 0; message < 1 + Math.random() * 4; message += 1) {
      for (let n = 0; n < Math.random() * 20; n += 1) await log.append([make(true)]);
      await Promise.all([append(1), append(1 + Math.floor(Math.random() * 3))]);
    }
    await append(1, "end");
  }
}

/** What the session's log kept, then the log opened to go on. */
async function reopen(store: Store): Promise<OpenedLog> {
  const [row] = await store.read("SELECT head FROM sessions WHERE id = ?", [SESSION]);
  if (row === undefined) await insertSession(store, SESSION);
  // Small, so that turns need more than one reservation.
  const opened = await createLogs(store, { reservedNumbers: 32 }).open(SESSION);
  const head = Number(row?.["head"] ?? 0);
  if (head > Number(after))
    for (const event of await readTo(opened.log, Number(after), head)) say(`kept ${event.seq} ${contentOf(event)}`);
  say(`open ${opened.last} ${opened.jumped}`);
  return opened;
}

function contentOf(event: LogEvent): string {
  return /"content":"([^"]*)"/.exec(Buffer.from(event.envelope).toString())?.[1] ?? "?";
}

async function write(store: Store): Promise<void> {
  const { log, last, jumped } = await reopen(store);
  void tellShown(log);
  // A durable event first where numbers may have been shown that are not in the log, as sessions/ does it.
  if (jumped) {
    say(`made ${last + 1} d.recovered`);
    await log.append([newEvent(SESSION, last + 1, { payload: '{"content":"d.recovered"}' })]);
  }
  await writeTurns(log, jumped ? last + 1 : last);
}

const store = await openStore({ dataDir });
if (mode === "write") await write(store);
if (mode === "once") await store.close();
if (mode === "hold") {
  say("held");
  setInterval(() => {}, 60_000);
}
