import type { Readable } from "node:stream";
import { createPipeEnd } from "./pipe-end.ts";
import type { RawHandlers } from "./port.ts";

export interface OutputPump {
  /** Called when the process group is gone. Resolves when everything was read and taken by the handlers. */
  finished(): Promise<void>;
}

/**
 * Hands over stdout, what one read brought at a time, and reads on when the handler has taken it. A handler that fails
 * would leave a hole in the log: `failed` is called, and nothing more is delivered.
 */
export function pumpOutput(
  stdout: Readable,
  handlers: Pick<RawHandlers, "chunk" | "ended">,
  failed: (error: unknown) => void,
): OutputPump {
  const end = createPipeEnd(stdout);
  // What the stream hands over although it is paused: the end of the process makes it flow again.
  const waiting: Buffer[] = [];
  let delivering: Promise<void> | undefined;
  let deliveries = 0;
  let hasFailed = false;

  function fail(error: unknown): void {
    hasFailed = true;
    failed(error);
  }

  function deliver(taken: () => void | Promise<void>): void {
    if (hasFailed) return;
    try {
      const promise = taken();
      if (promise === undefined) return;
      stdout.pause();
      delivering = promise.catch(fail).finally(readOn);
    } catch (error) {
      fail(error);
    }
  }

  function readOn(): void {
    delivering = undefined;
    deliveries += 1;
    while (delivering === undefined) {
      const chunk = waiting.shift();
      if (chunk === undefined) {
        stdout.resume();
        return;
      }
      deliver(() => handlers.chunk(chunk));
    }
  }

  stdout.on("data", (chunk: Buffer) => {
    if (delivering === undefined) {
      deliver(() => handlers.chunk(chunk));
      return;
    }
    waiting.push(chunk);
    stdout.pause();
  });

  async function settled(): Promise<void> {
    while (delivering !== undefined) await delivering;
  }

  return {
    async finished() {
      await end.reached(() => (delivering === undefined ? deliveries : undefined));
      await settled();
      deliver(() => handlers.ended());
      await settled();
    },
  };
}
