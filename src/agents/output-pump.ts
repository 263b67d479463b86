import type { Readable } from "node:stream";
import { createLineCutter } from "./lines.ts";
import { createPipeEnd } from "./pipe-end.ts";
import type { AgentHandlers, AgentOutput } from "./port.ts";

export interface OutputPump {
  /** Called when the process group is gone. Resolves when everything was read and taken by the handler. */
  finished(): Promise<void>;
}

/**
 * Hands over stdout, the lines of one read at a time, and reads on when the handler has taken them. A handler that fails
 * would leave a hole in the log: `failed` is called, and nothing more is delivered.
 */
export function pumpOutput(
  stdout: Readable,
  limitBytes: number,
  output: AgentHandlers["output"],
  failed: (error: unknown) => void,
): OutputPump {
  const cutter = createLineCutter(limitBytes);
  const end = createPipeEnd(stdout);
  let delivering: Promise<void> | undefined;
  let deliveries = 0;
  let hasFailed = false;

  function fail(error: unknown): void {
    hasFailed = true;
    failed(error);
  }

  function deliver(lines: readonly AgentOutput[]): void {
    if (lines.length === 0 || hasFailed) return;
    try {
      const taken = output(lines);
      if (taken === undefined) return;
      stdout.pause();
      delivering = taken.catch(fail).finally(() => {
        delivering = undefined;
        deliveries += 1;
        stdout.resume();
      });
    } catch (error) {
      fail(error);
    }
  }

  stdout.on("data", (chunk: Buffer) => deliver(cutter.push(chunk)));

  return {
    async finished() {
      await end.reached(() => (delivering === undefined ? deliveries : undefined));
      await delivering;
      deliver(cutter.end());
      await delivering;
    },
  };
}
