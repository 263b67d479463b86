import { setInterval } from "node:timers/promises";

/** Looks until it is so; the test's own time limit is the only one. For files and counters that tell nobody (expect.poll loses its test where several run at once). */
export async function until(isSo: () => boolean): Promise<void> {
  for await (const _tick of setInterval(20)) if (isSo()) return;
}
