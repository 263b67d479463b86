import { expect } from "vitest";
import { verifies } from "../kit/verifies.ts";
import { runChaos } from "./run.ts";

const SEED = 20_261_201;

for (const mode of ["auto", "inline"] as const) {
  verifies(
    "CHAOS",
    `a short run of faults with runner ${mode}: the checker finds nothing (longer: npm run chaos)`,
    async () => {
      const report = await runChaos({ seed: SEED, sessions: 3, mode, durationMs: mode === "auto" ? 8_000 : 3_000 });
      expect(report.violations).toEqual([]);
      expect(report.events).toBeGreaterThan(100);
      expect([...report.faults.values()].reduce((sum, count) => sum + count, 0)).toBeGreaterThan(3);
    },
    120_000,
  );
}
