import fc from "fast-check";
import { expect, test } from "vitest";
import { BACKOFF_DEFAULTS, backoffMs } from "../../src/client/backoff.ts";

const attempt = fc.nat(2000);
const random = fc.double({ min: 0, max: 1, maxExcluded: true, noNaN: true });

test("a wait is never zero, never above the limit, and grows with the attempts", () => {
  fc.assert(
    fc.property(attempt, random, (number, chance) => {
      const wait = backoffMs(number, chance, BACKOFF_DEFAULTS);
      expect(wait).toBeGreaterThanOrEqual(BACKOFF_DEFAULTS.minMs / 2);
      expect(wait).toBeLessThanOrEqual(BACKOFF_DEFAULTS.maxMs);
      expect(backoffMs(number + 1, chance, BACKOFF_DEFAULTS)).toBeGreaterThanOrEqual(wait);
    }),
  );
});

test("clients of one server spread over half of the ceiling", () => {
  expect(backoffMs(3, 0, BACKOFF_DEFAULTS)).toBe(1000);
  expect(backoffMs(3, 0.999, BACKOFF_DEFAULTS)).toBeCloseTo(1999);
});
