import type { Readable } from "node:stream";
import { createPipeEnd } from "./pipe-end.ts";

/** How much of stderr is kept for a report. */
const STDERR_TAIL_BYTES = 8 * 1024;

export interface StderrTail {
  /** Called when the process group is gone. Resolves with the last 8 KiB; bytes that are not UTF-8 are replaced. */
  finished(): Promise<string>;
}

/** Reads stderr for as long as it lasts, so that the agent never blocks on it, and keeps its end. */
export function keepStderrTail(stderr: Readable): StderrTail {
  const end = createPipeEnd(stderr);
  let tail = Buffer.alloc(0);
  stderr.on("data", (chunk: Buffer) => {
    tail = Buffer.concat([tail, chunk.subarray(-STDERR_TAIL_BYTES)]);
    if (tail.length > STDERR_TAIL_BYTES) tail = Buffer.from(tail.subarray(-STDERR_TAIL_BYTES));
  });
  return {
    async finished() {
      await end.reached(() => 0);
      return tail.toString("utf8");
    },
  };
}
