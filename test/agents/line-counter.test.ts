import fc from "fast-check";
import { expect, test } from "vitest";
import { createLineCutter } from "../../src/agents/lines.ts";
import { createLineCounter } from "../../src/agents/runner/line-counter.ts";

const bytes = fc.array(fc.constantFrom(10, 13, 97, 98), { maxLength: 60 }).map((codes) => Buffer.from(codes));
const chunks = fc.array(bytes, { maxLength: 12 });

test("counts what the cutter cuts, at any chunking and any limit", () => {
  fc.assert(
    fc.property(chunks, fc.integer({ min: 1, max: 20 }), (pieces, limit) => {
      const counter = createLineCounter();
      const cutter = createLineCutter(limit);
      for (const piece of pieces) expect(counter.count(piece)).toBe(cutter.push(piece).length);
      expect(counter.isLineOpen()).toBe(cutter.end().length === 1);
    }),
    { numRuns: 500 },
  );
});

test("finds the end of a line: what follows is what the cutter has not cut yet", () => {
  fc.assert(
    fc.property(bytes, fc.integer({ min: 1, max: 20 }), (whole, wanted) => {
      const all = createLineCutter(100).push(whole);
      const offset = createLineCounter().find(whole, wanted);
      expect(offset === undefined).toBe(all.length < wanted);
      if (offset !== undefined) expect(createLineCutter(100).push(whole.subarray(offset))).toEqual(all.slice(wanted));
    }),
    { numRuns: 500 },
  );
});
