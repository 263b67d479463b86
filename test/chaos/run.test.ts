import { expect } from "vitest";
import { verifies } from "../kit/verifies.ts";
import { runChaos } from "./run.ts";

const SEED = 20_261_201;

const DURATION_MS = { auto: 8000, inline: 3000, dialled: 4000 };

for (const mode of ["auto", "inline", "dialled"] as const) {
  verifies(
    "CHAOS",
    `a short run of faults with runner ${mode}: the checker finds nothing (longer: npm run chaos)`,
    async () => {
      const report = await runChaos({ seed: SEED, sessions: 3, mode, durationMs: DURATION_MS[mode], leastFaults: 4 });
      expect(report.violations).toEqual([]);
      expect(report.events).toBeGreaterThan(100);
      expect([...report.faults.values()].reduce((sum, count) => sum + count, 0)).toBeGreaterThan(3);
    },
    120_000,
  );
}
