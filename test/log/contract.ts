import { describe, expect, test } from "vitest";
import { createLogs } from "../../src/log/logs.ts";
import type { LogOptions } from "../../src/log/options.ts";
import type { Logs, OpenedLog } from "../../src/log/port.ts";
import { seq } from "../../src/protocol/ids.ts";
import type { Store } from "../../src/store/port.ts";
import type { Engine } from "../kit/engines.ts";
import { insertSession, newEvent, numbers, readTo, readUntil, tick } from "../kit/log-events.ts";
import { verifies } from "../kit/verifies.ts";

const ID = "s1";

interface Bench extends AsyncDisposable, OpenedLog {
  readonly store: Store;
  readonly logs: Logs;
}

/** What every engine's log must do, whoever looks at it from the port. */
export function logContract(name: string, openEngine: () => Promise<Engine>): void {
  async function openBench(options: Partial<LogOptions> = {}): Promise<Bench> {
    const engine = await openEngine();
    await insertSession(engine.store, ID);
    const logs = createLogs(engine.store, options);
    const opened = await logs.open(ID);
    return { ...opened, logs, store: engine.store, [Symbol.asyncDispose]: () => engine[Symbol.asyncDispose]() };
  }

  describe(name, () => {
    order(openBench);
    durability(openBench);
    previews(openBench);
    turnNumbers(openBench);
    retention(openBench);
    pages(openBench);
    lifetimes(openBench);
  });
}

type OpenBench = (options?: Partial<LogOptions>) => Promise<Bench>;

function order(openBench: OpenBench): void {
  verifies("P1-ORDER", "readers from the start, from the middle and of what comes see the same order", async () => {
    await using bench = await openBench();
    const { log } = bench;
    await log.append([newEvent(ID, 1), newEvent(ID, 2)]);
    const live = readTo(log, log.head(), 6);
    const fromStart = readTo(log, 0, 6);
    await tick();
    const appends = [
      log.append([newEvent(ID, 3)]),
      log.append([newEvent(ID, 4), newEvent(ID, 5)]),
      log.append([newEvent(ID, 6)]),
    ];
    await Promise.all(appends);
    expect(numbers(await live)).toEqual([3, 4, 5, 6]);
    expect(numbers(await fromStart)).toEqual([1, 2, 3, 4, 5, 6]);
    expect(numbers(await readTo(log, 4, 6))).toEqual([5, 6]);
    expect(log.head()).toBe(6);
  });

  verifies("P1-COMPLETE", "a reader far behind gets everything from the store in bounded batches", async () => {
    await using bench = await openBench({ tailBytes: 4_000, idleTailBytes: 1_000, batchBytes: 3_000 });
    const { log } = bench;
    for (let n = 1; n <= 60; n += 3)
      await log.append([newEvent(ID, n, { bytes: 700 }), newEvent(ID, n + 1), newEvent(ID, n + 2)]);
    const stop = new AbortController();
    const seen: number[] = [];
    for await (const batch of log.follow(seq(0), stop.signal)) {
      if (batch.kind === "gap") throw new Error("nothing was removed");
      const bytes = batch.events.reduce((sum, event) => sum + event.envelope.byteLength, 0);
      expect(bytes).toBeLessThanOrEqual(3_000);
      seen.push(...numbers(batch.events));
      if (seen.length === 60) stop.abort();
    }
    expect(seen).toEqual(Array.from({ length: 60 }, (_, index) => index + 1));
  });

  verifies("LOG-PREVIEW", "a reader that waits gets the previews of a turn that ends in the same tick", async () => {
    await using bench = await openBench();
    const { log } = bench;
    const stop = new AbortController();
    const reader = log.follow(seq(0), stop.signal)[Symbol.asyncIterator]();
    const first = reader.next();
    await log.append([newEvent(ID, 1), newEvent(ID, 2, { preview: true }), newEvent(ID, 3)], [], "end");
    const batch = await first;
    expect(batch.done || batch.value.kind === "gap" ? [] : numbers(batch.value.events)).toEqual([1, 2, 3]);
    stop.abort();
    // Somebody who comes later does not get it.
    expect(numbers(await readTo(log, 0, 3))).toEqual([1, 3]);
  });

  test("one event above the bounds travels alone, and stays at hand for the next reader", async () => {
    await using bench = await openBench({ tailBytes: 1_000, batchBytes: 500 });
    const { log } = bench;
    await log.append([newEvent(ID, 1), newEvent(ID, 2, { bytes: 10_000 }), newEvent(ID, 3)], [], "begin");
    expect(numbers(await readTo(log, 0, 3))).toEqual([1, 2, 3]);
  });

  test("readers at the same place share one batch", async () => {
    await using bench = await openBench();
    const { log } = bench;
    const stop = new AbortController();
    const readers = Array.from({ length: 1_000 }, () => log.follow(seq(0), stop.signal)[Symbol.asyncIterator]());
    const answers = readers.map((reader) => reader.next());
    await log.append([newEvent(ID, 1)]);
    const batches = new Set((await Promise.all(answers)).map((answer) => (answer.done ? undefined : answer.value)));
    expect(batches.size).toBe(1);
    stop.abort();
  });

  test("the envelope is the head in wire order around the payload's own bytes", async () => {
    await using bench = await openBench();
    const { log, store } = bench;
    const payload = '{ "b":1.0, "a":"\\u0000\\ud800", "n":1e2 }';
    const event = newEvent(ID, 1, { payload });
    const head = { ...event.head, turn_id: "t", command_id: 'c"', echo_of: seq(0), redacted: 2 };
    await log.append([{ ...event, head }]);
    const wanted = `{"session_id":"s1","seq":1,"event_type":"assistant","origin":"AGENT_EVENT","source":"agent","timestamp_ms":1700000000001,"turn_id":"t","command_id":"c\\"","echo_of":0,"redacted":2,"payload":${payload}}`;
    const [live] = await readTo(log, 0, 1);
    expect(Buffer.from(live?.envelope ?? []).toString()).toBe(wanted);
    const [row] = await store.read("SELECT envelope FROM events");
    expect(Buffer.from(row?.["envelope"] as Uint8Array).toString()).toBe(wanted);
  });
}

function durability(openBench: OpenBench): void {
  verifies("P2-DURABLE-FIRST", "what a reader is shown can be read from the store at that moment", async () => {
    await using bench = await openBench();
    const { log, store } = bench;
    const reading = readUntilChecked();
    const checks: Promise<void>[] = [];
    // Over several ticks, so that commits overlap with appends; nothing is shown in the tick of its append.
    for (let n = 1; n <= 40; n += 1) {
      checks.push(log.append([newEvent(ID, n)], [], n === 1 ? "begin" : undefined).then(checkHead));
      expect(log.head()).toBeLessThan(n);
      if (n % 4 === 0) await tick();
    }
    await Promise.all(checks);
    await reading;

    /** As soon as something is shown, and before the next commit can have begun. */
    async function checkHead(): Promise<void> {
      const head = log.head();
      const [row] = await store.read("SELECT max(seq) AS durable FROM events");
      expect(row?.["durable"]).toBeGreaterThanOrEqual(head);
    }

    async function readUntilChecked(): Promise<void> {
      const stop = new AbortController();
      for await (const batch of log.follow(seq(0), stop.signal)) {
        if (batch.kind === "gap") throw new Error("nothing was removed");
        for (const event of batch.events) {
          const rows = await store.read("SELECT seq FROM events WHERE session = ? AND seq = ?", [ID, event.seq]);
          expect(rows).toHaveLength(1);
          if (event.seq === 40) stop.abort();
        }
      }
    }
  });

  test("writes become durable with the events, and an append without events is in order too", async () => {
    await using bench = await openBench();
    const { log, store } = bench;
    const command = (id: string, n: number) => ({
      sql: "INSERT INTO commands (session, principal, id, hash, seq) VALUES (?, 'p', ?, 'h', ?)",
      params: [ID, id, n],
    });
    const first = log.append([newEvent(ID, 1)], [command("a", 1)]);
    const second = log.append([], [command("b", 0)]);
    await second;
    expect(await store.read("SELECT id FROM commands ORDER BY id")).toEqual([{ id: "a" }, { id: "b" }]);
    await first;
  });

  test("when the store refuses, the append and all after it reject, are not shown and are not kept", async () => {
    await using bench = await openBench();
    const { log, logs, store } = bench;
    await log.append([newEvent(ID, 1)]);
    const broken = log.append([newEvent(ID, 2)], [{ sql: "INSERT INTO no_such_table VALUES (1)", params: [] }]);
    const after = log.append([newEvent(ID, 3)]);
    const preview = log.append([newEvent(ID, 4, { preview: true })]);
    for (const refused of [broken, after, preview]) await expect(refused).rejects.toMatchObject({ code: "internal" });
    await expect(log.append([newEvent(ID, 5)])).rejects.toMatchObject({ code: "internal" });
    expect(log.head()).toBe(1);
    expect(await store.read("SELECT seq FROM events")).toEqual([{ seq: 1 }]);

    await logs.close(ID);
    const again = await logs.open(ID);
    await again.log.append([newEvent(ID, again.last + 1)]);
    expect(again.log.head()).toBe(again.last + 1);
  });
}

function previews(openBench: OpenBench): void {
  verifies("LOG-PREVIEW", "previews are shown at once in a turn, and go when it ends", async () => {
    await using bench = await openBench();
    const { log } = bench;
    await log.append([newEvent(ID, 1)], [], "begin");
    void log.append([newEvent(ID, 2, { preview: true })]);
    expect(log.head()).toBe(2);
    expect(numbers(await readTo(log, 0, 2))).toEqual([1, 2]);
    expect((await log.page({ after: seq(0), limit: 10, restricted: true })).events.map((event) => event.seq)).toEqual([
      1,
    ]);

    const ended = log.append([newEvent(ID, 3)], [], "end");
    void log.append([newEvent(ID, 4, { preview: true })]);
    expect(log.head()).toBe(2);
    await ended;
    expect(numbers(await readTo(log, 0, 4))).toEqual([1, 3, 4]);
    expect(await log.read(seq(4))).toBeUndefined();
  });

  verifies(
    "LOG-PREVIEW",
    "a preview never overtakes a durable event, and waits when no number is reserved",
    async () => {
      await using bench = await openBench({ reservedNumbers: 4 });
      const { log } = bench;
      const durable = log.append([newEvent(ID, 1)], [], "begin");
      const preview = log.append([newEvent(ID, 2, { preview: true })]);
      expect(log.head()).toBe(0);
      await preview;
      expect(log.head()).toBe(2);
      await durable;
      // More than the reservation holds: the rest waits for the next one, which nobody asked for.
      const many = Array.from({ length: 9 }, (_, index) => log.append([newEvent(ID, index + 3, { preview: true })]));
      expect(log.head()).toBeLessThan(11);
      await Promise.all(many);
      expect(log.head()).toBe(11);
      expect(numbers(await readTo(log, 0, 11))).toEqual([1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]);
    },
  );
}

function turnNumbers(openBench: OpenBench): void {
  verifies("LOG-NUMBERS", "after a crash in a turn the log goes on above everything that was shown", async () => {
    await using bench = await openBench();
    const { log, store } = bench;
    expect([bench.last, bench.jumped]).toEqual([0, false]);
    await log.append([newEvent(ID, 1)], [], "begin");
    for (let n = 2; n <= 5_000; n += 1) await log.append([newEvent(ID, n, { preview: true })]);
    expect(log.head()).toBe(5_000);
    const crashed = await createLogs(store).open(ID);
    expect(crashed.jumped).toBe(true);
    expect(crashed.last).toBeGreaterThanOrEqual(5_000);
    expect(crashed.log.head()).toBe(crashed.last);
    await crashed.log.append([newEvent(ID, crashed.last + 1)]);
    const quiet = await createLogs(store).open(ID);
    expect([quiet.last, quiet.jumped]).toEqual([crashed.last + 1, false]);
  });

  verifies("LOG-NUMBERS", "between turns nothing is reserved", async () => {
    await using bench = await openBench();
    const { log, logs } = bench;
    await log.append([newEvent(ID, 1)], [], "begin");
    await log.append([newEvent(ID, 2, { preview: true }), newEvent(ID, 3)], [], "end");
    await logs.close(ID);
    const again = await logs.open(ID);
    expect([again.last, again.jumped]).toEqual([3, false]);
  });

  test("a number that is not above the last is refused and changes nothing", async () => {
    await using bench = await openBench();
    const { log } = bench;
    await log.append([newEvent(ID, 5)]);
    await expect(log.append([newEvent(ID, 6), newEvent(ID, 6)])).rejects.toThrow(RangeError);
    await expect(log.append([newEvent("other", 6)])).rejects.toThrow(RangeError);
    await log.append([newEvent(ID, 6)]);
    expect(log.head()).toBe(6);
  });
}

function retention(openBench: OpenBench): void {
  verifies("LOG-GAP", "what retention removed is told once, and reading goes on behind it", async () => {
    await using bench = await openBench({ tailBytes: 2_000, batchBytes: 600 });
    const { log, logs, store } = bench;
    await log.append([newEvent(ID, 1)], [], "begin");
    for (let n = 2; n <= 20; n += 1) await log.append([newEvent(ID, n, { bytes: 200, preview: n > 9 && n < 13 })]);
    const stop = new AbortController();
    const slow = log.follow(seq(0), stop.signal)[Symbol.asyncIterator]();
    const first = await slow.next();
    await logs.trim(ID, seq(11));
    expect(await store.read("SELECT seq FROM events WHERE seq <= 11")).toEqual([]);
    const gaps: number[] = [];
    const seen = await readUntil(
      log,
      0,
      (events) => (events.at(-1)?.seq ?? 0) >= 20,
      (available) => gaps.push(available),
    );
    expect(gaps).toEqual([13]);
    expect(numbers(seen)).toEqual([13, 14, 15, 16, 17, 18, 19, 20]);
    expect(first.value).toMatchObject({ kind: "events" });
    expect(await slow.next()).toEqual({ done: false, value: { kind: "gap", firstAvailable: 13 } });
    stop.abort();

    const behind = log.page({ after: seq(8), limit: 10, restricted: true });
    await expect(behind).rejects.toMatchObject({ code: "history_gone", details: { first_available: 13 } });
    expect(numbers((await log.page({ after: seq(12), limit: 2, restricted: true })).events)).toEqual([13, 14]);
    expect(await log.read(seq(5))).toBeUndefined();

    const reopened = await createLogs(store).open(ID);
    await expect(reopened.log.page({ after: seq(0), limit: 10, restricted: true })).rejects.toMatchObject({
      code: "history_gone",
    });
  });

  verifies("LOG-GAP", "a log without any event left names the next number that can come", async () => {
    await using bench = await openBench();
    const { log, logs } = bench;
    for (let n = 1; n <= 3; n += 1) await log.append([newEvent(ID, n)]);
    await logs.trim(ID, seq(100));
    const gaps: number[] = [];
    const reading = readUntil(
      log,
      0,
      (events) => events.length > 0,
      (available) => gaps.push(available),
    );
    await tick();
    await log.append([newEvent(ID, 4)]);
    expect(numbers(await reading)).toEqual([4]);
    expect(gaps).toEqual([4]);
  });

  test("purge removes every event of the session and of no other", async () => {
    await using bench = await openBench();
    const { log, logs, store } = bench;
    await insertSession(store, "s2");
    const other = await logs.open("s2");
    await other.log.append([newEvent("s2", 1)]);
    const many = Array.from({ length: 2_500 }, (_, index) => newEvent(ID, index + 1));
    await log.append(many);
    const reading = readUntil(log, log.head(), () => false);
    await tick();
    await logs.purge(ID);
    await reading;
    expect(await store.read("SELECT session, seq FROM events")).toEqual([{ session: "s2", seq: 1 }]);
  });
}

function pages(openBench: OpenBench): void {
  test("pages ascend, filter, and say where to go on", async () => {
    await using bench = await openBench();
    const { log } = bench;
    await log.append([
      newEvent(ID, 1),
      newEvent(ID, 2, { eventType: "user" }),
      newEvent(ID, 3, { restricted: true }),
      newEvent(ID, 4, { eventType: "user" }),
      newEvent(ID, 7),
    ]);
    const page = async (after: number, limit: number, more: { eventType?: string; restricted?: boolean } = {}) => {
      const found = await log.page({ after: seq(after), limit, restricted: true, ...more });
      return [numbers(found.events), found.head, found.next];
    };
    expect(await page(0, 10)).toEqual([[1, 2, 3, 4, 7], 7, 7]);
    expect(await page(0, 2)).toEqual([[1, 2], 7, 2]);
    expect(await page(4, 1)).toEqual([[7], 7, 7]);
    expect(await page(7, 5)).toEqual([[], 7, 7]);
    expect(await page(0, 10, { eventType: "user" })).toEqual([[2, 4], 7, 7]);
    expect(await page(0, 1, { eventType: "user" })).toEqual([[2], 7, 2]);
    expect(await page(2, 10, { restricted: false })).toEqual([[4, 7], 7, 7]);
    expect((await log.read(seq(3)))?.restricted).toBe(true);
    expect(await log.read(seq(5))).toBeUndefined();
  });

  test("a page of big events is cut by bytes and goes on", async () => {
    await using bench = await openBench({ pageBytes: 2_000 });
    const { log } = bench;
    await log.append([1, 2, 3, 4].map((n) => newEvent(ID, n, { bytes: n === 3 ? 9_000 : 800 })));
    const seen: number[][] = [];
    for (let after = 0; after < log.head(); ) {
      const found = await log.page({ after: seq(after), limit: 100, restricted: true });
      seen.push(numbers(found.events));
      after = found.next;
    }
    expect(seen).toEqual([[1, 2], [3], [4]]);
  });

  test("a cursor above head is refused by pages and by follow", async () => {
    await using bench = await openBench();
    const { log } = bench;
    await log.append([newEvent(ID, 3)]);
    await expect(log.page({ after: seq(4), limit: 1, restricted: true })).rejects.toMatchObject({
      code: "cursor_ahead",
    });
    await expect(readTo(log, 4, 5)).rejects.toMatchObject({ code: "cursor_ahead" });
  });
}

function lifetimes(openBench: OpenBench): void {
  test("an abort ends a waiting reader quietly, before and after it began", async () => {
    await using bench = await openBench();
    const { log } = bench;
    const stop = new AbortController();
    const reader = log.follow(seq(0), stop.signal)[Symbol.asyncIterator]();
    const waiting = reader.next();
    await tick();
    stop.abort();
    expect(await waiting).toEqual({ done: true, value: undefined });
    const late = log.follow(seq(0), stop.signal)[Symbol.asyncIterator]();
    expect(await late.next()).toEqual({ done: true, value: undefined });
  });

  test("close ends readers, settles appends, and lets the log be opened again", async () => {
    await using bench = await openBench();
    const { log, logs } = bench;
    await expect(logs.open(ID)).rejects.toThrow("open already");
    const reading = readUntil(log, 0, () => false);
    const pending = log.append([newEvent(ID, 1)]);
    await logs.close(ID);
    await pending;
    await reading;
    await expect(log.append([newEvent(ID, 2)])).rejects.toMatchObject({ code: "internal" });
    const again = await logs.open(ID);
    expect(numbers(await readTo(again.log, 0, 1))).toEqual([1]);
  });

  test("a session without a row is not found", async () => {
    await using bench = await openBench();
    await expect(bench.logs.open("nobody")).rejects.toMatchObject({ code: "not_found" });
    await expect(bench.logs.open("nobody")).rejects.toMatchObject({ code: "not_found" });
  });
}
