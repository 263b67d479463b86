import fc from "fast-check";
import { describe, expect } from "vitest";
import { createLogs } from "../../src/log/logs.ts";
import type { EventLog, NewEvent } from "../../src/log/port.ts";
import { seq } from "../../src/protocol/ids.ts";
import { type Engine, openFileEngine, openMemoryEngine } from "../kit/engines.ts";
import { insertSession, newEvent, numbers, tick } from "../kit/log-events.ts";
import { verifies } from "../kit/verifies.ts";

/** Bounds so small that every path (tail, store, waiting for a reservation) is taken within a few events. */
const TIGHT = { tailBytes: 2_500, idleTailBytes: 600, batchBytes: 500, reservedNumbers: 6 };

const step = fc.oneof(
  {
    weight: 5,
    arbitrary: fc.record({
      kind: fc.constant("append" as const),
      previews: fc.array(fc.boolean(), { maxLength: 5 }),
      bytes: fc.nat(300),
      skip: fc.nat(2),
    }),
  },
  { weight: 2, arbitrary: fc.record({ kind: fc.constant("edge" as const) }) },
  {
    weight: 2,
    arbitrary: fc.record({ kind: fc.constant("follow" as const), from: fc.double({ min: 0, max: 1, noNaN: true }) }),
  },
  {
    weight: 4,
    arbitrary: fc.record({
      kind: fc.constant("read" as const),
      who: fc.nat(50),
      batches: fc.integer({ min: 1, max: 6 }),
    }),
  },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant("abort" as const), who: fc.nat(50) }) },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant("settle" as const) }) },
  { weight: 2, arbitrary: fc.record({ kind: fc.constant("tick" as const) }) },
);
type Step = typeof step extends fc.Arbitrary<infer S> ? S : never;

/** A reader that takes batches only when told to. */
function createReader(log: EventLog, after: number) {
  const stop = new AbortController();
  const iterator = log.follow(seq(after), stop.signal)[Symbol.asyncIterator]();
  const seen: number[] = [];
  let busy: Promise<void> = Promise.resolve();
  let ended = false;
  let target = Number.POSITIVE_INFINITY;

  /** Also while more batches are asked for than will ever come. */
  function stopAtTarget(): void {
    if ((seen.at(-1) ?? after) >= target) stop.abort();
  }

  async function takeOne(): Promise<void> {
    const answer = await iterator.next();
    if (answer.done) {
      ended = true;
      return;
    }
    if (answer.value.kind === "gap") throw new Error("nothing was removed");
    for (const event of answer.value.events) {
      if (event.seq > log.head()) throw new Error(`${event.seq} is shown above head ${log.head()}`);
    }
    seen.push(...numbers(answer.value.events));
    stopAtTarget();
  }

  return {
    after,
    seen,
    stop,
    take(batches: number): void {
      for (let n = 0; n < batches; n += 1) busy = busy.then(() => (ended ? undefined : takeOne()));
    },
    /** Reads on until the number was seen. */
    async catchUp(last: number): Promise<void> {
      target = last;
      stopAtTarget();
      while (!ended && !stop.signal.aborted) {
        this.take(1);
        await busy;
      }
      await busy;
    },
  };
}
type Reader = ReturnType<typeof createReader>;

async function runSteps(engine: Engine, id: string, steps: readonly Step[]): Promise<void> {
  await insertSession(engine.store, id);
  const logs = createLogs(engine.store, TIGHT);
  const { log } = await logs.open(id);
  const readers: Reader[] = [];
  const durable: number[] = [];
  const previews = new Set<number>();
  const appends: Promise<void>[] = [];
  let last = 0;
  let inTurn = false;

  function make(preview: boolean, bytes: number, skip: number): NewEvent {
    last += 1 + skip;
    if (preview) previews.add(last);
    else durable.push(last);
    return newEvent(id, last, { preview, bytes });
  }

  async function take(one: Step): Promise<void> {
    const reader = "who" in one ? readers[one.who % Math.max(1, readers.length)] : undefined;
    switch (one.kind) {
      case "append":
        appends.push(log.append(one.previews.map((preview) => make(preview, one.bytes, one.skip))));
        return;
      case "edge":
        inTurn = !inTurn;
        appends.push(log.append([make(false, 10, 0)], [], inTurn ? "begin" : "end"));
        return;
      case "follow":
        readers.push(createReader(log, Math.floor(log.head() * one.from)));
        return;
      case "read":
        reader?.take(one.batches);
        return;
      case "abort":
        reader?.stop.abort();
        return;
      case "settle":
        await Promise.all(appends);
        return;
      case "tick":
        await tick();
        return;
    }
  }

  for (const one of steps) await take(one);
  appends.push(log.append([make(false, 10, 0)]));
  await Promise.all(appends);
  for (const reader of readers) {
    const wasAborted = reader.stop.signal.aborted;
    await reader.catchUp(last);
    check(reader, durable, previews, wasAborted);
  }
  expect(numbers((await log.page({ after: seq(0), limit: 1_000, restricted: true })).events)).toEqual(durable);
  await logs.close(id);
  const again = await logs.open(id);
  expect(again.last).toBeGreaterThanOrEqual(last);
  await logs.close(id);
}

/** Each durable event once and in order, none missing up to where the reader stopped; previews in order, at most once. */
function check(reader: Reader, durable: readonly number[], previews: ReadonlySet<number>, wasAborted: boolean): void {
  expect(reader.seen).toEqual([...new Set(reader.seen)].sort((a, b) => a - b));
  const end = wasAborted ? (reader.seen.at(-1) ?? reader.after) : Number.POSITIVE_INFINITY;
  const owed = durable.filter((number) => number > reader.after && number <= end);
  expect(reader.seen.filter((number) => !previews.has(number))).toEqual(owed);
  if (!wasAborted) expect(reader.seen.at(-1)).toBe(durable.at(-1));
}

describe.each([
  { name: "in memory", open: openMemoryEngine, runs: 400 },
  { name: "SQLite in a file", open: openFileEngine, runs: 100 },
])("any interleaving, $name", ({ open, runs }) => {
  verifies(
    "P1-COMPLETE",
    "slow, late, aborted and live readers miss no durable event and see none twice",
    async () => {
      await using engine = await open();
      let session = 0;
      await fc.assert(
        fc.asyncProperty(fc.array(step, { maxLength: 60, size: "max" }), async (steps) => {
          session += 1;
          await runSteps(engine, `s${session}`, steps);
        }),
        { numRuns: runs },
      );
    },
    60_000,
  );
});
