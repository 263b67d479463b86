import { existsSync, statSync } from "node:fs";
import { join } from "node:path";
import fc from "fast-check";
import { expect, test } from "vitest";
import { createLineCutter } from "../../src/agents/lines.ts";
import { createJournal, type Journal } from "../../src/agents/runner/journal.ts";
import { createSpool } from "../../src/agents/runner/spool.ts";
import { makeTempDir } from "../kit/temp-dir.ts";

async function readAll(journal: Journal, from: number): Promise<Buffer> {
  const pieces: Buffer[] = [];
  for (let at = from; at < journal.end(); ) {
    const piece = await journal.read(at, 7);
    expect(piece.length).toBeGreaterThan(0);
    pieces.push(piece);
    at += piece.length;
  }
  return Buffer.concat(pieces);
}

const texts = (bytes: Buffer): string[] =>
  createLineCutter(10_000)
    .push(bytes)
    .map((line) => JSON.stringify(line));

const step = fc.oneof(
  {
    weight: 4,
    arbitrary: fc
      .array(fc.constantFrom(10, 13, 97, 98), { minLength: 1, maxLength: 40 })
      .map((codes) => Buffer.from(codes)),
  },
  { weight: 1, arbitrary: fc.nat({ max: 40 }) },
);

test("from any line on it gives back what came, in memory and on disk, whatever was acknowledged meanwhile", async () => {
  using temp = makeTempDir();
  let count = 0;
  await fc.assert(
    fc.asyncProperty(
      fc.array(step, { maxLength: 40 }),
      fc.integer({ min: 0, max: 3000 }),
      async (steps, memoryBytes) => {
        const journal = createJournal(createSpool(join(temp.path, String(count++)), 1_000_000), memoryBytes);
        let whole = Buffer.alloc(0);
        let acknowledged = 0;
        for (const each of steps) {
          if (typeof each === "number") {
            acknowledged = Math.max(acknowledged, Math.min(each, journal.lines()));
            journal.acknowledge(acknowledged);
          } else {
            await journal.append(each);
            whole = Buffer.concat([whole, each]);
          }
        }
        await journal.finish();
        if (createLineCutter(10_000).push(whole).length < journal.lines())
          whole = Buffer.concat([whole, Buffer.from("\n")]);
        const all = texts(whole);
        expect(journal.lines()).toBe(all.length);
        for (let after = 0; after <= all.length; after++) {
          const { offset, line } = await journal.seek(after);
          expect(line).toBe(Math.max(after, acknowledged));
          expect(texts(await readAll(journal, offset))).toEqual(all.slice(line));
        }
        await journal.close();
      },
    ),
    { numRuns: 150 },
  );
});

test("beyond memory and disk it takes no more until something is acknowledged", async () => {
  using temp = makeTempDir();
  const path = join(temp.path, "spool");
  const journal = createJournal(createSpool(path, 10_000), 10_000);
  const line = Buffer.from(`${"x".repeat(999)}\n`);
  let taken = 0;
  let blocked: Promise<void> | undefined;
  while (blocked === undefined && taken < 100) {
    const appended = journal.append(line);
    if (appended !== undefined) {
      const settled = await Promise.race([
        appended.then(() => true),
        new Promise<false>((resolve) => setTimeout(() => resolve(false), 200)),
      ]);
      if (!settled) blocked = appended;
    }
    if (blocked === undefined) taken += 1;
  }
  expect(taken).toBe(17);
  expect(statSync(path).mode & 0o777).toBe(0o600);
  journal.acknowledge(3);
  await blocked;
  expect(journal.lines()).toBe(18);
  expect(texts(await readAll(journal, (await journal.seek(0)).offset))).toHaveLength(15);
  await journal.close();
  expect(existsSync(path)).toBe(false);
});

test("a disk that takes nothing costs no output: it waits", async () => {
  using temp = makeTempDir();
  const journal = createJournal(createSpool(join(temp.path, "no", "such", "folder"), 1e6), 2000);
  const line = Buffer.from(`${"x".repeat(999)}\n`);
  expect(journal.append(line)).toBeUndefined();
  const waiting = journal.append(line);
  expect(waiting).toBeInstanceOf(Promise);
  // Until the disk is asked again, by an acknowledgement, which makes room in memory too.
  journal.acknowledge(1);
  await waiting;
  expect(journal.lines()).toBe(2);
});

/** What the runner does with a journal, one thing while another is under way. */
type Move =
  | { readonly kind: "append" | "append, and all before it is acknowledged"; readonly bytes: Buffer }
  | { readonly kind: "read"; readonly limit: number }
  | { readonly kind: "ack"; readonly share: number }
  | { readonly kind: "join"; readonly share: number }
  | { readonly kind: "ticks"; readonly count: number };

const share = fc.double({ min: 0, max: 1, maxExcluded: true, noNaN: true });
const move: fc.Arbitrary<Move> = fc.oneof(
  {
    weight: 4,
    arbitrary: fc.array(fc.constantFrom(10, 97, 98), { minLength: 1, maxLength: 60 }).chain((codes) =>
      fc.record({
        kind: fc.constantFrom("append" as const, "append, and all before it is acknowledged" as const),
        bytes: fc.constant(Buffer.from(codes)),
      }),
    ),
  },
  { weight: 3, arbitrary: fc.record({ kind: fc.constant("read" as const), limit: fc.integer({ min: 1, max: 100 }) }) },
  { weight: 2, arbitrary: fc.record({ kind: fc.constant("ack" as const), share }) },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant("join" as const), share }) },
  {
    weight: 1,
    arbitrary: fc.record({ kind: fc.constant("ticks" as const), count: fc.integer({ min: 1, max: 6 }) }),
  },
);

/** A server's side: reads on from a cursor, acknowledges lines that it has, and begins anew behind one of those now and then. */
function createReader(journal: Journal) {
  let offset = 0;
  let line = 0;
  let acknowledged = 0;
  let cutter = createLineCutter(10_000);
  let reading: Promise<void> = Promise.resolve();
  const lines: string[] = [];

  async function readOnce(limit: number): Promise<void> {
    offset = Math.max(offset, journal.start());
    if (offset >= journal.end()) return;
    const bytes = await journal.read(offset, limit);
    offset += bytes.length;
    for (const output of cutter.push(bytes)) {
      const text = JSON.stringify(output);
      // A line that came before must come as it was.
      expect(lines[line] ?? text).toBe(text);
      lines[line] = text;
      line += 1;
    }
  }

  async function join(after: number): Promise<void> {
    const place = await journal.seek(after);
    offset = place.offset;
    line = place.line;
    cutter = createLineCutter(10_000);
  }

  return {
    lines,
    read: (limit: number) => {
      reading = reading.then(() => readOnce(limit));
    },
    join: (part: number) => {
      reading = reading.then(() => join(acknowledged + Math.floor(part * (line - acknowledged + 1))));
    },
    acknowledge(part: number) {
      acknowledged = Math.max(acknowledged, Math.floor(part * (line + 1)));
      journal.acknowledge(acknowledged);
    },
    idle: () => reading,
    async all() {
      await reading;
      while (offset < journal.end()) await readOnce(100);
    },
  };
}

test("appending, reading and acknowledging at once, in any order, changes no byte", async () => {
  using temp = makeTempDir();
  let count = 0;
  await fc.assert(
    fc.asyncProperty(
      fc.array(move, { minLength: 10, maxLength: 120 }),
      fc.integer({ min: 0, max: 1500 }),
      async (moves, memoryBytes) => {
        const journal = createJournal(createSpool(join(temp.path, String(count++)), 1_000_000), memoryBytes);
        const reader = createReader(journal);
        let appending = journal.append(Buffer.from("0\n"));
        const pieces: Buffer[] = [Buffer.from("0\n")];
        for (const each of moves) {
          if ("bytes" in each) {
            // The next one only when this one is taken: an agent's pipe is read no sooner.
            await appending;
            if (each.kind !== "append") await reader.all();
            pieces.push(each.bytes);
            appending = journal.append(each.bytes);
            if (each.kind !== "append") {
              for (let tick = 0; tick < each.bytes.length % 12; tick++) await undefined;
              reader.acknowledge(0.999);
            }
          } else if (each.kind === "read") reader.read(each.limit);
          else if (each.kind === "join") reader.join(each.share);
          else if (each.kind === "ack") reader.acknowledge(each.share);
          else if (each.kind === "ticks")
            for (let tick = 0; tick < each.count; tick++) await new Promise((resolve) => setImmediate(resolve));
        }
        await appending;
        await reader.all();
        expect(reader.lines).toEqual(texts(Buffer.concat(pieces)));
        await journal.close();
      },
    ),
    { numRuns: 400 },
  );
});
