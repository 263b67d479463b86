import { mkdirSync, writeFileSync } from "node:fs";
import { Session } from "node:inspector/promises";
import { dirname } from "node:path";

const SAMPLE_MICROS = 200;

/** Samples the main thread between two calls, so that start and warm-up are left out. The file opens in Chrome's DevTools and bench/hot.ts. */
export function createProfiler() {
  const session = new Session();
  return {
    async start(): Promise<void> {
      session.connect();
      await session.post("Profiler.enable");
      await session.post("Profiler.setSamplingInterval", { interval: SAMPLE_MICROS });
      await session.post("Profiler.start");
    },
    async stop(path: string): Promise<void> {
      const { profile } = await session.post("Profiler.stop");
      session.disconnect();
      mkdirSync(dirname(path), { recursive: true });
      writeFileSync(path, JSON.stringify(profile));
    },
  };
}
