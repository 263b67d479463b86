import { expect, test } from "vitest";
import { createLogs } from "../../src/log/logs.ts";
import type { EventLog, Logs } from "../../src/log/port.ts";
import { seq } from "../../src/protocol/ids.ts";
import { createRetention, type RetentionSettings, scheduleRetention } from "../../src/sessions/retention.ts";
import { insertSession } from "../../src/sessions/rows.ts";
import { newState, type Snapshot, snapshotOf } from "../../src/sessions/state.ts";
import type { Store } from "../../src/store/port.ts";
import { openMemoryEngine } from "../kit/engines.ts";
import { type EventShape, newEvent, numbers, readTo, readUntil } from "../kit/log-events.ts";
import { verifies } from "../kit/verifies.ts";

/** `newEvent` gives the event number n this time plus n milliseconds. */
const FIRST_MS = 1_700_000_000_000;
const BIG = 1000;

/** A session's log with events of these numbers; each takes a little over `BIG` bytes. */
async function fill(
  logs: Logs,
  store: Store,
  id: string,
  {
    tenant = "acme",
    numbers: wanted,
    shape = {},
    state = {},
  }: {
    tenant?: string;
    numbers: readonly number[];
    shape?: EventShape;
    state?: Partial<Snapshot>;
  },
): Promise<EventLog> {
  const snapshot = { ...snapshotOf(newState("cli")), ...state };
  const spec = { agent: {}, cwd: ".", ownFolder: true };
  const row = {
    id,
    tenant,
    name: null,
    metadata: {},
    createdAtMs: FIRST_MS,
    updatedAtMs: 0,
    head: seq(0),
    reserved: 0,
    mark: 0,
  };
  await store.write([insertSession({ ...row, spec, snapshot })]);
  const { log } = await logs.open(id);
  await log.append(wanted.map((number) => newEvent(id, number, { bytes: BIG, ...shape })));
  return log;
}

const upTo = (last: number): number[] => Array.from({ length: last }, (_, index) => index + 1);

async function left(store: Store, id: string): Promise<number[]> {
  const rows = await store.read("SELECT seq FROM events WHERE session = ? ORDER BY seq", [id]);
  return rows.map((row) => Number(row["seq"]));
}

const NONE: RetentionSettings = { maxAgeMs: 0, maxBytesPerTenant: 0 };
const retention = (store: Store, logs: Logs, settings: Partial<RetentionSettings>, now = FIRST_MS) =>
  createRetention({ store, logs, settings: { ...NONE, ...settings }, now: () => now });

test("without bounds nothing is ever removed", async () => {
  await using engine = await openMemoryEngine();
  const logs = createLogs(engine.store);
  await fill(logs, engine.store, "s1", { numbers: upTo(5) });
  expect(await retention(engine.store, logs, {}, FIRST_MS * 2).run()).toBe(0);
  expect(await left(engine.store, "s1")).toEqual(upTo(5));
});

test("by age: exactly the events before the time go, in sessions that are open and in those that are not", async () => {
  await using engine = await openMemoryEngine();
  const { store } = engine;
  const logs = createLogs(store);
  await fill(logs, store, "open", { numbers: [2, 5, 6, 30, 31, 90] });
  await fill(logs, store, "shut", { numbers: upTo(40) });
  await fill(logs, store, "young", { numbers: [50, 60] });
  await logs.close("shut");
  const job = retention(store, logs, { maxAgeMs: 1000 }, FIRST_MS + 1000 + 31);
  expect(await job.run()).toBe(2);
  expect(await left(store, "open")).toEqual([31, 90]);
  expect(await left(store, "shut")).toEqual([31, 32, 33, 34, 35, 36, 37, 38, 39, 40]);
  expect(await left(store, "young")).toEqual([50, 60]);
  expect(await job.run()).toBe(0);
});

test("by age: the time is found in an envelope whose type is longer than what is read first", async () => {
  await using engine = await openMemoryEngine();
  const { store } = engine;
  const logs = createLogs(store);
  const eventType = `"timestamp_ms":1,${"x".repeat(5000)}`;
  await fill(logs, store, "s1", { numbers: upTo(9), shape: { eventType } });
  await retention(store, logs, { maxAgeMs: 1 }, FIRST_MS + 1 + 5).run();
  expect(await left(store, "s1")).toEqual([5, 6, 7, 8, 9]);
});

test("by size: the tenant's oldest events go first, whichever session they are of, until the rest fits; others lose nothing", async () => {
  await using engine = await openMemoryEngine();
  const { store } = engine;
  const logs = createLogs(store);
  await fill(logs, store, "old", { numbers: upTo(10) });
  await fill(logs, store, "new", { numbers: [101, 102, 103, 104, 105] });
  await fill(logs, store, "other", { numbers: upTo(10), tenant: "globex" });
  await fill(logs, store, "small", { numbers: [1], tenant: "tiny" });
  const [row] = await store.read("SELECT SUM(length(envelope)) AS bytes FROM events WHERE session IN ('old', 'new')");
  const total = Number(row?.["bytes"]);
  const job = retention(store, logs, { maxBytesPerTenant: total - 3 * BIG });
  await job.run();
  // Three events free a little more than three times the filling.
  expect([await left(store, "old"), await left(store, "new")]).toEqual([
    [4, 5, 6, 7, 8, 9, 10],
    [101, 102, 103, 104, 105],
  ]);
  expect(await left(store, "other")).toEqual(upTo(10));
  expect(await job.run()).toBe(0);
  await retention(store, logs, { maxBytesPerTenant: 4 * BIG }).run();
  expect([await left(store, "old"), await left(store, "new")]).toEqual([[], [103, 104, 105]]);
  expect(await left(store, "other")).toEqual([8, 9, 10]);
  expect(await left(store, "small")).toEqual([1]);
});

test("by size: a pass counts what is new since the one before, over hundreds of events and several trims", async () => {
  await using engine = await openMemoryEngine();
  const { store } = engine;
  const logs = createLogs(store);
  const log = await fill(logs, store, "s1", { numbers: upTo(700) });
  const job = retention(store, logs, { maxBytesPerTenant: 100 * BIG });
  expect(await job.run()).toBe(4);
  const kept = await left(store, "s1");
  expect(kept.at(-1)).toBe(700);
  expect(kept.length).toBeLessThan(100);
  expect(kept.length).toBeGreaterThan(80);
  await log.append(
    upTo(750)
      .slice(700)
      .map((number) => newEvent("s1", number, { bytes: BIG })),
  );
  await job.run();
  expect(await left(store, "s1")).toEqual(upTo(750).slice(-kept.length));
});

const turn = { turnId: "t", by: "user", started: true, echoed: true } as const;
test.each<readonly [string, Partial<Snapshot>, readonly number[]]>([
  ["a queued message", { queue: [{ turnId: "t", seq: 4, delivery: "after_turn" }] }, [4, 5, 6, 7, 8]],
  ["an open turn", { turns: [{ ...turn, seq: 3 }] }, [3, 4, 5, 6, 7, 8]],
  ["a turn that the agent began by itself", { turns: [{ ...turn, by: "agent" }] }, [1, 2, 3, 4, 5, 6, 7, 8]],
  [
    "an open request",
    {
      requests: [
        { request_id: "r", kind: "permission", subtype: "can_use_tool", seq: seq(6), opened_at_ms: 1, request: {} },
      ],
    },
    [6, 7, 8],
  ],
  ["a command that waits for the agent", { held: [7] }, [7, 8]],
  [
    "a line that the runner may not have",
    {
      outbox: [
        { id: 1, line: { type: "x" } },
        { id: 2, line: 8 },
      ],
    },
    [8],
  ],
  [
    "an unanswered command",
    { pending: [{ requestId: "q", commandId: "c2", subtype: "x", written: true }] },
    [5, 6, 7, 8],
  ],
  ["nothing", {}, []],
])("what %s still needs is kept, by age and by size", async (_what, state, expected) => {
  for (const settings of [{ maxAgeMs: 1 }, { maxBytesPerTenant: 1 }]) {
    await using engine = await openMemoryEngine();
    const { store } = engine;
    const logs = createLogs(store);
    await fill(logs, store, "s1", { numbers: upTo(8), state });
    const command = "INSERT INTO commands (session, principal, id, hash, seq) VALUES ('s1', 'p', ?, '', ?)";
    await store.write([
      { sql: command, params: ["c1", 2] },
      { sql: command, params: ["c2", 5] },
    ]);
    await retention(store, logs, settings, FIRST_MS * 2).run();
    expect(await left(store, "s1")).toEqual(expected);
  }
});

verifies(
  "LOG-GAP",
  "a reader that is behind what retention removes is told so and goes on; numbers go on too",
  async () => {
    await using engine = await openMemoryEngine();
    const { store } = engine;
    const logs = createLogs(store, { tailBytes: 1 });
    const log = await fill(logs, store, "s1", { numbers: upTo(20) });
    const gaps: number[] = [];
    const job = retention(store, logs, { maxAgeMs: 1 }, FIRST_MS + 1 + 16);
    await job.run();
    const rest = readUntil(
      log,
      2,
      (seen) => (seen.at(-1)?.seq ?? 0) >= 21,
      (first) => gaps.push(first),
    );
    await log.append([newEvent("s1", 21)]);
    expect(numbers(await rest)).toEqual([16, 17, 18, 19, 20, 21]);
    expect(gaps).toEqual([16]);
    await retention(store, logs, { maxAgeMs: 1 }, FIRST_MS * 2).run();
    await logs.close("s1");
    const again = await logs.open("s1");
    expect(again.last).toBeGreaterThanOrEqual(21);
    await again.log.append([newEvent("s1", again.last + 1)]);
    expect(numbers(await readTo(again.log, 0, again.last + 1))).toEqual([again.last + 1]);
  },
);

test("appends are not held up: each step of a pass is a short transaction, and others' come in between", async () => {
  await using engine = await openMemoryEngine();
  const { store } = engine;
  const logs = createLogs(store);
  const log = await fill(logs, store, "s1", { numbers: upTo(2000) });
  const job = retention(store, logs, { maxBytesPerTenant: 1 });
  let done = false;
  const pass = job.run().then(() => {
    done = true;
  });
  let appended = 0;
  while (!done) {
    appended += 1;
    await log.append([newEvent("s1", 2000 + appended)]);
  }
  await pass;
  expect(appended).toBeGreaterThan(5);
  expect((await left(store, "s1")).at(-1)).toBe(2000 + appended);
});

test("two calls at once are one pass", async () => {
  await using engine = await openMemoryEngine();
  const { store } = engine;
  const logs = createLogs(store);
  await fill(logs, store, "s1", { numbers: upTo(10) });
  const job = retention(store, logs, { maxBytesPerTenant: 1 });
  expect(await Promise.all([job.run(), job.run()])).toEqual([1, 1]);
});

test("passes go on after one that failed, and stop when they are told to", async () => {
  const errors: unknown[] = [];
  let calls = 0;
  const twice = Promise.withResolvers<void>();
  const run = async (): Promise<number> => {
    calls += 1;
    if (calls === 1) throw new Error("disk");
    twice.resolve();
    return 0;
  };
  const schedule = scheduleRetention({ run }, 1, (error) => errors.push(error));
  await twice.promise;
  await schedule.stop();
  const atStop = calls;
  await new Promise((resolve) => setImmediate(resolve));
  expect(calls).toBe(atStop);
  expect(errors).toEqual([new Error("disk")]);
});
