import fc from "fast-check";
import { expect, test } from "vitest";
import { createLineCutter } from "../../src/agents/lines.ts";
import type { AgentOutput } from "../../src/agents/port.ts";
import { verifies } from "../kit/verifies.ts";
import { textOf } from "./watched-agent.ts";

const LIMIT_BYTES = 64;

function cut(chunks: readonly Buffer[], limitBytes = LIMIT_BYTES): AgentOutput[] {
  const cutter = createLineCutter(limitBytes);
  return [...chunks.flatMap((chunk) => cutter.push(chunk)), ...cutter.end()];
}

/** Kind and content, without the buffers' identity. */
function plain(outputs: readonly AgentOutput[]): unknown[] {
  return outputs.map((output) =>
    output.kind === "dropped" ? output : { kind: output.kind, hex: Buffer.from(output.bytes).toString("hex") },
  );
}

function split(bytes: Buffer, sizes: readonly number[]): Buffer[] {
  const chunks: Buffer[] = [];
  let start = 0;
  for (const size of sizes) {
    chunks.push(bytes.subarray(start, start + size));
    start += size;
  }
  return [...chunks, bytes.subarray(start)];
}

const piece = fc.oneof(
  fc.constantFrom("\n", "\r\n", "\r", "", " ", "{}", '{"a":"é💡"}', "null", "[1]", "{", "\u2028"),
  fc.json().map((text) => `${text}\n`),
  fc.string({ unit: "grapheme", maxLength: 100 }),
);
const stream = fc.oneof(
  fc.array(piece, { maxLength: 30 }).map((pieces) => Buffer.from(pieces.join(""))),
  fc.uint8Array({ maxLength: 400 }).map((bytes) => Buffer.from(bytes)),
);

verifies("AGENT-NOISE", "only a line of valid UTF-8 that is one JSON object is a line; all else is noise", () => {
  const cases: [string | Uint8Array, AgentOutput["kind"]][] = [
    ['{"type":"x"}', "line"],
    ['{"type":"never heard of","deep":{"a":[1]}}', "line"],
    ["null", "noise"],
    ["[1,2]", "noise"],
    ['"text"', "noise"],
    ["12", "noise"],
    ["not json", "noise"],
    ['{"a":1}{"b":2}', "noise"],
    ['{"a":1', "noise"],
    ["\uFEFF{}", "noise"],
    ["   ", "noise"],
    [Uint8Array.of(0x7b, 0x22, 0xff, 0x22, 0x3a, 0x31, 0x7d), "noise"],
    // A surrogate half in UTF-8 form, and an overlong slash.
    [Uint8Array.of(0x7b, 0x22, 0xed, 0xa0, 0x80, 0x22, 0x3a, 0x31, 0x7d), "noise"],
    [Uint8Array.of(0x7b, 0x22, 0xc0, 0xaf, 0x22, 0x3a, 0x31, 0x7d), "noise"],
    // White space to JSON, but the end of a field to SSE.
    ['{"a":\r1}', "noise"],
    ['{"a":1}\r\r', "noise"],
  ];
  for (const [text, kind] of cases) {
    const bytes = Buffer.from(text);
    const [output, ...rest] = cut([bytes, Buffer.from("\n")]);
    expect(output?.kind, String(text)).toBe(kind);
    expect(rest).toEqual([]);
  }
});

verifies("P4-BYTES", "a line's bytes are the agent's own, whatever it wrote between braces", () => {
  fc.assert(
    fc.property(fc.json({ noUnicodeString: false }), fc.integer({ min: 0, max: 3 }), (json, spaces) => {
      const text = `${" ".repeat(spaces)}{ "n":1.0e3 ,"value":${json}}`;
      const [output] = cut([Buffer.from(`${text}\n`)], 1_000_000);
      expect(output?.kind).toBe("line");
      expect(output && textOf(output)).toBe(text);
    }),
  );
});

test("any chunking of any bytes gives the same lines", () => {
  fc.assert(
    fc.property(stream, fc.array(fc.nat({ max: 20 })), (bytes, sizes) => {
      expect(plain(cut(split(bytes, sizes)))).toEqual(plain(cut([bytes])));
    }),
    { numRuns: 500 },
  );
});

test("pieces of every size, large and small, join to the same line", () => {
  const size = fc.constantFrom(1, 100, 4095, 4096, 5000, 70_000);
  const text = `{"a":"${Array.from({ length: 40_000 }, (_, index) => index.toString(36)).join(" ")}"}`;
  fc.assert(
    fc.property(fc.array(size, { maxLength: 40 }), (sizes) => {
      const outputs = cut(split(Buffer.from(`${text}\n${text}`), sizes), 1_000_000);
      expect(outputs.map(textOf)).toEqual([text, text]);
    }),
  );
});

test("lines are what lies between newlines, without one trailing CR, empty ones left out", () => {
  fc.assert(
    fc.property(stream, (bytes) => {
      const expected = bytes
        .toString("latin1")
        .split("\n")
        .map((line) => (line.endsWith("\r") ? line.slice(0, -1) : line))
        .filter((line) => line !== "");
      const got = cut([bytes], 1_000_000).map((output) =>
        output.kind === "dropped" ? "" : Buffer.from(output.bytes).toString("latin1"),
      );
      expect(got).toEqual(expected);
    }),
  );
});

verifies("AGENT-LINE-LIMIT", "a line over the limit becomes its size, and the next one arrives", () => {
  const long = "x".repeat(LIMIT_BYTES + 1);
  const fits = `{"a":"${"y".repeat(LIMIT_BYTES - 8)}"}`;
  expect(fits.length).toBe(LIMIT_BYTES);
  for (const size of [1, 7, 1000]) {
    const bytes = Buffer.from(`${long}\n${fits}\n${long}\r\n${fits}\r\n${long}`);
    const outputs = cut(split(bytes, Array(Math.ceil(bytes.length / size)).fill(size)));
    expect(outputs.map((output) => output.kind)).toEqual(["dropped", "line", "dropped", "line", "dropped"]);
    for (const output of outputs) if (output.kind === "dropped") expect(output.bytes).toBe(LIMIT_BYTES + 1);
  }
});

verifies("AGENT-LINE-LIMIT", "nothing of an over-long line is kept while it passes by", () => {
  const cutter = createLineCutter(1024 * 1024);
  const chunk = Buffer.alloc(64 * 1024, "x");
  const before = process.memoryUsage().rss;
  for (let count = 0; count < 16 * 1024; count++) expect(cutter.push(Buffer.from(chunk))).toEqual([]);
  expect(process.memoryUsage().rss - before).toBeLessThan(200 * 1024 * 1024);
  expect(cutter.push(Buffer.from("\n{}\n"))).toMatchObject([{ kind: "dropped", bytes: 1024 ** 3 }, { kind: "line" }]);
});

test("a line of many megabytes in one-byte chunks is no object per byte", () => {
  const cutter = createLineCutter(64 * 1024 * 1024);
  const text = `{"a":"${"b".repeat(2_000_000)}"}`;
  for (const byte of Buffer.from(text)) cutter.push(Buffer.of(byte));
  const before = process.memoryUsage().heapUsed;
  const [output] = cutter.push(Buffer.from("\n"));
  expect(output && textOf(output)).toBe(text);
  expect(process.memoryUsage().heapUsed - before).toBeLessThan(64 * 1024 * 1024);
});

test("bytes handed out are not overwritten by what comes later", () => {
  const cutter = createLineCutter(1000);
  cutter.push(Buffer.from('{"fir'));
  const [first] = cutter.push(Buffer.from('st":1}\n{"sec'));
  const [second] = cutter.push(Buffer.from('ond":2}\n'));
  expect([first, second].map((output) => output && textOf(output))).toEqual(['{"first":1}', '{"second":2}']);
});
