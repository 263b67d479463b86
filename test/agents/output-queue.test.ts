import { expect, test } from "vitest";
import { createLineCutter } from "../../src/agents/lines.ts";
import { FrameFault } from "../../src/agents/runner/frames.ts";
import { createOutputQueue } from "../../src/agents/runner/output-queue.ts";

test("a runner that sends beyond every window is a faulty peer: what is held for a slow log has a bound", () => {
  const queue = createOutputQueue({
    cutter: () => createLineCutter(1024 * 1024),
    output: () => new Promise<void>(() => {}),
    exited() {},
    taken() {},
    failed() {},
  });
  queue.start(0, false);
  const line = Buffer.from(`${JSON.stringify({ type: "x", fill: "y".repeat(200_000) })}\n`);
  let pushed = 0;
  const flood = (): void => {
    for (; pushed < 64 * 1024 * 1024; pushed += line.length) queue.push(line);
  };
  expect(flood).toThrow(FrameFault);
  expect(pushed).toBeLessThan(6 * 1024 * 1024);
});
