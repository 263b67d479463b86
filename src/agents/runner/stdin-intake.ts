import type { Agent } from "../port.ts";
import { FrameFault } from "./frames.ts";

/** A run's stdin on the runner's side: each line is written once. */
export interface StdinIntake {
  /** The highest id of a line that is taken. */
  taken(): number;
  /** The highest id of a line that is in the pipe, or would be if the pipe were not dead. */
  written(): number;
  /** What is taken and not in the pipe, in bytes. */
  unwrittenBytes(): number;
  /** A line, or a piece of it (`more`). @throws FrameFault for more than any server of ours sends to an agent that does not read */
  push(id: number, bytes: Buffer, more: boolean): void;
  /** The rest of a line that has begun will not come. */
  dropPartial(): void;
}

/** A server keeps within its window, or sends one line that is larger; a line is at most as large as a query. */
const UNWRITTEN_LIMIT_BYTES = 128 * 1024 * 1024;
/** A piece may be empty. */
const PIECE_OVERHEAD_BYTES = 256;

export function createStdinIntake(agent: Agent, written: (id: number) => void): StdinIntake {
  let taken = 0;
  let inPipe = 0;
  let unwrittenBytes = 0;
  let partial: Buffer[] = [];
  let partialBytes = 0;

  function dropPartial(): void {
    partial = [];
    partialBytes = 0;
  }

  async function write(id: number, line: Buffer): Promise<void> {
    taken = id;
    unwrittenBytes += line.length;
    await agent.writeLine(line);
    unwrittenBytes -= line.length;
    inPipe = Math.max(inPipe, id);
    written(inPipe);
  }

  return {
    taken: () => taken,
    written: () => inPipe,
    unwrittenBytes: () => unwrittenBytes,
    dropPartial,
    push(id, bytes, more) {
      partialBytes += bytes.length + PIECE_OVERHEAD_BYTES;
      if (unwrittenBytes + partialBytes > UNWRITTEN_LIMIT_BYTES) throw new FrameFault("frame_too_large");
      partial.push(bytes);
      if (more) return;
      const line = partial.length === 1 ? bytes : Buffer.concat(partial);
      dropPartial();
      if (id > taken) void write(id, line);
    },
  };
}
