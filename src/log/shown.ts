import { type Seq, seq } from "../protocol/ids.ts";
import type { LogOptions } from "./options.ts";
import type { LogEvent } from "./port.ts";
import { createTail, type Tail } from "./tail.ts";

/** One reader's place in the waiting room. */
interface Reader {
  /** False once its signal has aborted or the log is closed. */
  isHere(): boolean;
  /** Resolves when something more was shown, or the reader is no longer here. */
  wait(): Promise<void>;
  leave(): void;
}

/** What readers can see of one session, and the readers that wait for more. */
export interface Shown {
  readonly tail: Tail;
  /** The highest number shown so far. */
  head(): Seq;
  /** Durable events up to this number were removed by retention; 0 when none were. */
  removed(): Seq;
  show(events: readonly LogEvent[]): void;
  beginTurn(): void;
  /** The turn's previews, up to its last number, are let go. */
  endTurn(last: Seq): void;
  remove(upTo: Seq): void;
  join(signal: AbortSignal): Reader;
  close(): void;
}

export function createShown(start: { head: Seq; removed: Seq }, options: LogOptions): Shown {
  const tail = createTail(start.head);
  const waiting = new Set<() => void>();
  let { head, removed } = start;
  let readers = 0;
  let turnRuns = false;
  let closed = false;
  let wakeIsDue = false;
  /** Last number of a turn whose previews are still here. */
  let endedTurn: Seq | undefined;

  /** One wake-up for all that was shown in this tick, and for all who wait. */
  function wake(): void {
    if (wakeIsDue || waiting.size === 0) return;
    wakeIsDue = true;
    setImmediate(() => {
      wakeIsDue = false;
      wakeAll();
    });
  }

  function wakeAll(): void {
    const resumes = [...waiting];
    waiting.clear();
    for (const resume of resumes) resume();
  }

  /**
   * With every reader at the end, a turn that is over lets its previews go, and between turns little needs to be at hand. Readers that
   * are still on their way, or about to be woken, get the last previews first; what they can hold up is bounded by the tail.
   */
  function settle(): void {
    if (wakeIsDue || waiting.size !== readers) return;
    if (endedTurn !== undefined) tail.dropPreviews(endedTurn);
    endedTurn = undefined;
    if (!turnRuns) tail.shrink(options.idleTailBytes, 0);
  }

  function join(signal: AbortSignal): Reader {
    let here = !signal.aborted;
    let resume: (() => void) | undefined;
    const leave = (): void => {
      if (!here) return;
      here = false;
      readers -= 1;
      signal.removeEventListener("abort", leave);
      if (resume !== undefined && waiting.delete(resume)) resume();
      settle();
    };
    if (here) {
      readers += 1;
      signal.addEventListener("abort", leave);
    }
    return {
      isHere: () => here && !closed,
      wait: () =>
        new Promise((resolve) => {
          if (!here || closed) return resolve();
          resume = resolve;
          waiting.add(resolve);
          settle();
        }),
      leave,
    };
  }

  return {
    tail,
    head: () => head,
    removed: () => removed,
    show(events) {
      for (const event of events) {
        head = event.seq;
        if (!closed) tail.push(event);
      }
      // The newest stays however big it is: else each of its readers would fetch it from the store.
      tail.shrink(options.tailBytes, 1);
      if (readers === 0) settle();
      wake();
    },
    beginTurn() {
      turnRuns = true;
    },
    endTurn(last) {
      turnRuns = false;
      endedTurn = last;
      settle();
    },
    remove(upTo) {
      removed = seq(Math.max(removed, upTo));
      tail.dropUpTo(removed);
    },
    join,
    close() {
      closed = true;
      tail.dropUpTo(head);
      wakeAll();
    },
  };
}
