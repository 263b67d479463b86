import { execFile } from "node:child_process";
import { promisify } from "node:util";
import fc from "fast-check";
import { expect, test } from "vitest";
import { formatReport, type Report } from "../../bench/report.ts";
import { createEventReader, createLineReader, type WireReader } from "../../bench/wire.ts";
import { seq as brandSeq } from "../../src/protocol/ids.ts";
import { eventFrame } from "../../src/transport/frame.ts";

// No speed is asserted here: only that the bench runs, measures every contender, and that what it counts is right.
test("the bench measures the floor, the naive relay and ours, with 1 and 100 viewers", {
  timeout: 120_000,
}, async () => {
  const args = ["bench/run.ts", "--quick", "--events", "100", "--rounds", "1", "--json"];
  const { stdout } = await promisify(execFile)(process.execPath, args);
  const report: Report = JSON.parse(stdout);
  const cells = [1, 100].flatMap((viewers) => ["floor", "naive", "ours"].map((name) => `${name} ${viewers}`));
  expect(report.rows.map((row) => `${row.contender} ${row.viewers}`)).toEqual(cells);
  for (const row of report.rows) expect(row.cpuMicrosPerEvent?.median).toBeGreaterThan(0);
  const table = formatReport(report);
  for (const cell of cells) expect(table).toMatch(new RegExp(`\\| +${cell.replace(" ", " \\| +")} \\|`));
});

const types = fc.array(fc.constantFrom("stream_event", "assistant", "user", "system", "turn.started"), {
  minLength: 1,
});
const sizes = fc.array(fc.integer({ min: 1, max: 400 }), { minLength: 1 });

/** Feeds bytes in pieces of these sizes, over and over, through one piece of memory as a socket's reads are. */
function feed(reader: WireReader, bytes: Buffer, pieces: readonly number[]): void {
  const memory = Buffer.alloc(512);
  for (let at = 0, index = 0; at < bytes.length; index++) {
    const count = bytes.copy(memory, 0, at, at + (pieces[index % pieces.length] ?? 1));
    reader.read(memory.subarray(0, count));
    at += count;
  }
}

function frameOf(type: string, seq: number, padding: number): Buffer {
  const head = `"session_id":"s","seq":${seq},"event_type":"${type}","payload"`;
  const envelope = Buffer.from(`{${head}:"${"x".repeat(padding)}"}`);
  return Buffer.concat(
    eventFrame({ seq: brandSeq(seq), eventType: type, preview: false, restricted: false, envelope, encoded: {} }),
  );
}

const countOf = (all: readonly string[], wanted: readonly string[]): number =>
  all.filter((type) => wanted.includes(type)).length;

test("a viewer counts every event, however its bytes are cut", () => {
  fc.assert(
    fc.property(types, sizes, sizes, (sent, pieces, paddings) => {
      const events = createEventReader(() => undefined);
      const lines = createLineReader();
      const padding = (index: number): number => (paddings[index % paddings.length] ?? 0) * (index % 5 === 4 ? 300 : 1);
      const frames = sent.map((type, index) => frameOf(type, index * 7 + 1, padding(index)));
      feed(events, Buffer.concat([...frames, frameOf("result", sent.length * 7 + 1, 0)]), pieces);
      const text = sent.map((type, index) => `{"type":"${type}","x":"${"x".repeat(padding(index))}"}\n`).join("");
      feed(lines, Buffer.from(`${text}{"type":"result"}\n`), pieces);
      for (const { seen } of [events, lines]) {
        expect(seen.previews).toBe(countOf(sent, ["stream_event"]));
        expect(seen.durable).toBe(countOf(sent, ["assistant", "user", "system"]));
        expect(seen).toMatchObject({ isDone: true, fault: undefined });
      }
    }),
  );
});

test("a viewer reports a number that comes twice, and a socket that the server closes", () => {
  const repeated = createEventReader(() => undefined);
  feed(repeated, Buffer.concat([frameOf("assistant", 5, 1), frameOf("assistant", 5, 1)]), [100]);
  expect(repeated.seen.fault).toBe("event 5 came after 5");
  const closed = createEventReader(() => undefined);
  feed(closed, Buffer.from([0x88, 2, 0x0f, 0xa1]), [1]);
  expect(closed.seen.fault).toBe("the server closed the socket");
});
