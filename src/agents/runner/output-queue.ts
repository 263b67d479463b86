import type { LineCutter } from "../lines.ts";
import type { AgentExit, AgentOutput } from "../port.ts";
import { FrameFault } from "./frames.ts";

/** One run's output on the server's side: in order, numbered, one delivery after the other. */
export interface OutputQueue {
  /** The handlers have everything up to this line; the exit too, if that is `isPastExit`. */
  start(after: number, isPastExit: boolean): void;
  /** A new stream begins behind this line. */
  begin(from: number): void;
  /** @throws FrameFault when more is held than a runner may have sent */
  push(bytes: Buffer): void;
  /** Without a number it is the one after what has been handed over when the exit is told: what the runner had beyond that is lost. */
  end(exit: AgentExit, number?: number): void;
  /** The stream broke off: what was not delivered yet will come again. */
  interrupt(): void;
  /** The number of the last line, or of the exit, that was handed over. */
  delivered(): number;
  /** The exit was handed over. */
  hasEnded(): boolean;
}

export interface OutputQueueParts {
  readonly cutter: () => LineCutter;
  readonly output: (lines: readonly AgentOutput[], upTo: number) => void | Promise<void>;
  readonly exited: (exit: AgentExit, number: number) => void;
  /** So many bytes of the stream have been handled: the runner may send more. */
  readonly taken: (bytes: number) => void;
  /** A handler failed. Nothing more is delivered but the exit. */
  readonly failed: () => void;
}

/** The runner's window is four of these: it never waits for what we have not told yet. */
const TOLD_STEP_BYTES = 256 * 1024;

/** Four windows of a runner of ours. */
const HELD_LIMIT_BYTES = 4 * 1024 * 1024;

type Item = Buffer | { readonly exit: AgentExit; readonly number: number | undefined };

export function createOutputQueue(parts: OutputQueueParts): OutputQueue {
  let waiting: Item[] = [];
  let cutter = parts.cutter();
  let delivered = 0;
  let stream = 0;
  let takenBytes = 0;
  let toldBytes = 0;
  let isStarted = false;
  let isDelivering = false;
  let hasFailed = false;
  let heldBytes = 0;
  let hasEnded = false;

  function fail(error: unknown): void {
    process.emitWarning(error instanceof Error ? error : new Error(String(error)));
    hasFailed = true;
    parts.failed();
  }

  function took(bytes: number, ofStream: number): void {
    if (ofStream !== stream) return;
    takenBytes += bytes;
    if (takenBytes - toldBytes < TOLD_STEP_BYTES) return;
    toldBytes = takenBytes;
    parts.taken(takenBytes);
  }

  function handOver(lines: readonly AgentOutput[]): void | Promise<void> {
    if (lines.length === 0 || hasFailed) return undefined;
    delivered += lines.length;
    try {
      return parts.output(lines, delivered);
    } catch (error) {
      fail(error);
      return undefined;
    }
  }

  function deliver(bytes: Buffer): void {
    const taken = handOver(cutter.push(bytes));
    if (taken === undefined) took(bytes.length, stream);
    else void settle(taken, bytes.length, stream);
  }

  async function settle(taken: Promise<void>, bytes: number, ofStream: number): Promise<void> {
    isDelivering = true;
    await taken.catch(fail);
    isDelivering = false;
    took(bytes, ofStream);
    goOn();
  }

  function tellExit(exit: AgentExit, number = delivered + 1): void {
    if (hasEnded) return;
    hasEnded = true;
    const isNews = number > delivered;
    delivered = Math.max(delivered, number);
    if (!isNews) return;
    try {
      parts.exited(exit, number);
    } catch (error) {
      process.emitWarning(error instanceof Error ? error : new Error(String(error)));
    }
  }

  function goOn(): void {
    while (isStarted && !isDelivering) {
      const item = waiting.shift();
      if (item === undefined) return;
      if (Buffer.isBuffer(item)) {
        heldBytes -= item.length;
        deliver(item);
      } else tellExit(item.exit, item.number);
    }
  }

  function add(item: Item): void {
    waiting.push(item);
    goOn();
  }

  return {
    delivered: () => delivered,
    hasEnded: () => hasEnded,
    start(after, isPastExit) {
      delivered = after;
      hasEnded = isPastExit;
      isStarted = true;
      // An exit that came before anybody wanted to know: told once the caller's own step is over.
      if (waiting.length > 0) queueMicrotask(goOn);
    },
    begin(from) {
      stream += 1;
      waiting = [];
      heldBytes = 0;
      cutter = parts.cutter();
      takenBytes = 0;
      toldBytes = 0;
      delivered = Math.max(delivered, from);
    },
    push(bytes) {
      // The usual case, without a queue.
      if (isStarted && !isDelivering && waiting.length === 0) {
        deliver(bytes);
        return;
      }
      waiting.push(bytes);
      // A runner of ours stops at its window; what is not ours must not fill the server's memory.
      heldBytes += bytes.length;
      if (heldBytes > HELD_LIMIT_BYTES) throw new FrameFault("window_exceeded");
    },
    end: (exit, number) => add({ exit, number }),
    interrupt() {
      stream += 1;
      waiting = [];
      heldBytes = 0;
    },
  };
}
