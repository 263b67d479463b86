import type { Readable } from "node:stream";
import { setTimeout as delay } from "node:timers/promises";

/** How long a pipe may be silent, once nothing of ours is left to write into it. */
const QUIET_MS = 1000;
/** More than any pipe holds: what still comes after this much is written by somebody who escaped. */
const LEFTOVER_LIMIT_BYTES = 8 * 1024 * 1024;

/** A pipe that is read elsewhere; says when it has been read to its end. */
export interface PipeEnd {
  /**
   * Called when all its writers should be dead. Resolves when it was read to its end; a pipe that some escaped process
   * keeps open is closed from our side instead of waiting for ever. `taken` counts what the reader has dealt with, and is
   * undefined while it is we who do not read.
   */
  reached(taken: () => number | undefined): Promise<void>;
}

export function createPipeEnd(stream: Readable): PipeEnd {
  let readBytes = 0;
  let isOpen = true;
  const closed = new Promise<void>((resolve) => {
    stream.once("close", () => {
      isOpen = false;
      resolve();
    });
  });
  stream.on("data", (chunk: Buffer) => {
    readBytes += chunk.length;
  });
  // A read error is an end like any other; `close` follows it.
  stream.on("error", () => {});

  return {
    async reached(taken) {
      const atFirst = readBytes;
      while (isOpen) {
        const before = [readBytes, taken()];
        const timer = new AbortController();
        await Promise.race([closed, delay(QUIET_MS, undefined, { signal: timer.signal }).catch(() => {})]);
        timer.abort();
        const after = [readBytes, taken()];
        if (after[1] === undefined) continue;
        const isQuiet = before[0] === after[0] && before[1] === after[1];
        if (isQuiet || readBytes - atFirst > LEFTOVER_LIMIT_BYTES) stream.destroy();
      }
    },
  };
}
