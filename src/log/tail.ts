import type { Seq } from "../protocol/ids.ts";
import type { Batch, LogEvent } from "./port.ts";

/** What an event costs besides its envelope, so that many small ones are bounded too. */
const EVENT_OVERHEAD_BYTES = 256;

/** How much of its bound a tail keeps when it has outgrown it. */
const KEPT_SHARE = 7 / 8;

export type EventBatch = Extract<Batch, { kind: "events" }>;

/** The events of a session shown last, in order: live readers are served from here. */
export interface Tail {
  push(event: LogEvent): void;
  /** Every durable event above this number that was ever shown is in here. */
  from(): Seq;
  /** The next batch after a cursor that is not below `from`; the same object for every reader there. Undefined at the end. */
  batchAfter(cursor: Seq, maxBytes: number): EventBatch | undefined;
  /** The event with this number, if it is in here. */
  find(seq: Seq): LogEvent | undefined;
  /** Lets go of the oldest events when there is more than so much; the newest `keep` events stay in any case. */
  shrink(maxBytes: number, keep: number): void;
  /** Lets go of the previews up to a number. */
  dropPreviews(upTo: Seq): void;
  /** Lets go of everything up to a number. */
  dropUpTo(upTo: Seq): void;
}

export function createTail(startAfter: Seq): Tail {
  let events: LogEvent[] = [];
  let bytes = 0;
  let from = startAfter;
  const batches = new Map<Seq, EventBatch>();

  /** Index of the first event above the cursor. */
  function indexAfter(cursor: number): number {
    let low = 0;
    let high = events.length;
    while (low < high) {
      const middle = (low + high) >>> 1;
      if ((events[middle]?.seq ?? 0) > cursor) high = middle;
      else low = middle + 1;
    }
    return low;
  }

  function dropFirst(count: number): void {
    for (const event of events.splice(0, count)) {
      bytes -= cost(event);
      from = event.seq;
    }
    batches.clear();
  }

  return {
    push(event) {
      events.push(event);
      bytes += cost(event);
      batches.clear();
    },
    from: () => from,
    batchAfter(cursor, maxBytes) {
      const known = batches.get(cursor);
      if (known !== undefined) return known;
      const start = indexAfter(cursor);
      if (start >= events.length) return undefined;
      let end = start;
      let batchBytes = 0;
      while (end < events.length) {
        batchBytes += events[end]?.envelope.byteLength ?? 0;
        if (end > start && batchBytes > maxBytes) break;
        end += 1;
      }
      const batch: EventBatch = { kind: "events", events: events.slice(start, end) };
      batches.set(cursor, batch);
      return batch;
    },
    find(wanted) {
      const event = events[indexAfter(wanted - 1)];
      return event?.seq === wanted ? event : undefined;
    },
    shrink(maxBytes, keep) {
      if (bytes <= maxBytes) return;
      // A good piece at a time: moving the rest of the array for each event would cost more than the event.
      const wanted = bytes - maxBytes * KEPT_SHARE;
      let count = 0;
      for (let dropped = 0; dropped < wanted && events.length - count > keep; count += 1)
        dropped += cost(events[count]);
      dropFirst(count);
    },
    dropPreviews(upTo) {
      events = events.filter((event) => !event.preview || event.seq > upTo);
      bytes = events.reduce((sum, event) => sum + cost(event), 0);
      batches.clear();
    },
    dropUpTo(upTo) {
      dropFirst(indexAfter(upTo));
      if (upTo > from) from = upTo;
    },
  };
}

function cost(event: LogEvent | undefined): number {
  return event === undefined ? 0 : event.envelope.byteLength + EVENT_OVERHEAD_BYTES;
}
