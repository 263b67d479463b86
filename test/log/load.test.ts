import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { expect, test } from "vitest";
import { createLogs } from "../../src/log/logs.ts";
import { seq } from "../../src/protocol/ids.ts";
import { openFileEngine } from "../kit/engines.ts";
import { insertSession, newEvent, numbers, readTo } from "../kit/log-events.ts";
import { verifies } from "../kit/verifies.ts";

setFlagsFromString("--expose-gc");
const collectGarbage: () => void = runInNewContext("gc");
const MEBIBYTE = 1024 * 1024;

test("appends of many sessions in one tick share commits", async () => {
  await using engine = await openFileEngine();
  const { store } = engine;
  const logs = createLogs(store);
  const ids = Array.from({ length: 200 }, (_, n) => `s${n}`);
  await Promise.all(ids.map((id) => insertSession(store, id)));
  const opened = await Promise.all(ids.map((id) => logs.open(id)));
  const before = store.commits();
  for (let n = 1; n <= 10; n += 1) {
    await Promise.all(opened.map(({ log }, index) => log.append([newEvent(ids[index] ?? "", n)])));
  }
  // 2,000 appends that each resolved durable.
  expect(store.commits() - before).toBeLessThanOrEqual(20);
  for (const { log } of opened) expect(log.head()).toBe(10);
});

test("a thousand readers of one session each see everything", async () => {
  await using engine = await openFileEngine();
  const { store } = engine;
  await insertSession(store, "s");
  const { log } = await createLogs(store).open("s");
  const reading = Array.from({ length: 1_000 }, () => readTo(log, 0, 60));
  await log.append([newEvent("s", 1)], [], "begin");
  for (let n = 2; n < 60; n += 1) await log.append([newEvent("s", n, { preview: n % 10 !== 0 })]);
  await log.append([newEvent("s", 60)], [], "end");
  const durable = [1, 10, 20, 30, 40, 50, 60];
  for (const seen of await Promise.all(reading)) {
    expect(numbers(seen).filter((number) => durable.includes(number))).toEqual(durable);
    expect(seen.every((event, index) => index === 0 || event.seq > (seen[index - 1]?.seq ?? 0))).toBe(true);
  }
});

verifies(
  "P1-COMPLETE",
  "200 MB produced while a reader is paused cost bounded memory, and it misses nothing",
  async () => {
    await using engine = await openFileEngine();
    const { store } = engine;
    await insertSession(store, "s");
    const { log } = await createLogs(store).open("s");
    const stop = new AbortController();
    const paused = log.follow(seq(0), stop.signal)[Symbol.asyncIterator]();
    await log.append([newEvent("s", 1)], [], "begin");
    await paused.next();

    const payload = JSON.stringify("x".repeat(MEBIBYTE / 8));
    const before = process.memoryUsage();
    let peakRss = before.rss;
    const events = 1_600;
    for (let n = 2; n <= events; n += 4) {
      const appends = [0, 1, 2, 3].map((more) => log.append([newEvent("s", n + more, { payload })]));
      await Promise.all(appends);
      peakRss = Math.max(peakRss, process.memoryUsage.rss());
    }
    // Garbage that is not yet collected counts in the first, only what is really held in the second.
    expect((peakRss - before.rss) / MEBIBYTE).toBeLessThan(180);
    collectGarbage();
    expect((process.memoryUsage().arrayBuffers - before.arrayBuffers) / MEBIBYTE).toBeLessThan(24);

    let next = 2;
    for (let answer = await paused.next(); !answer.done; answer = await paused.next()) {
      if (answer.value.kind === "gap") throw new Error("nothing was removed");
      for (const event of answer.value.events) {
        expect(event.seq).toBe(next);
        next += 1;
      }
      if (next > events) stop.abort();
    }
    expect(next).toBeGreaterThan(events);
  },
  60_000,
);
