import { type Seq, seq } from "../protocol/ids.ts";
import { BrokerError } from "../protocol/problems.ts";
import type { Store } from "../store/port.ts";
import type { LogOptions } from "./options.ts";
import type { Batch } from "./port.ts";
import type { Shown } from "./shown.ts";
import { firstAvailable, readRange } from "./stored.ts";
import type { EventBatch } from "./tail.ts";

/** What reading one session's log takes. */
export interface Source {
  readonly sessionId: string;
  readonly store: Store;
  readonly shown: Shown;
  readonly options: LogOptions;
}

/** The one read path: from the tail when the cursor is inside, from the store when it is behind, waiting at the end. */
export async function* followLog(source: Source, after: Seq, signal: AbortSignal): AsyncGenerator<Batch, void, void> {
  const { sessionId, store, shown, options } = source;
  refuseAhead(after, shown.head());
  const reader = shown.join(signal);
  let cursor = after;
  try {
    while (reader.isHere()) {
      if (cursor < shown.removed()) {
        const first = await firstAvailable(store, sessionId, shown.removed(), shown.head());
        cursor = seq(first - 1);
        if (reader.isHere()) yield { kind: "gap", firstAvailable: first };
      } else if (cursor >= shown.tail.from()) {
        const batch = shown.tail.batchAfter(cursor, options.batchBytes);
        if (batch === undefined) {
          await reader.wait();
        } else {
          cursor = endOf(batch, cursor);
          yield batch;
        }
      } else {
        // All that is below the tail has been shown and is durable, so an empty answer means that there is nothing.
        const upTo = shown.tail.from();
        const found = await readRange(store, sessionId, {
          after: cursor,
          upTo,
          maxBytes: options.batchBytes,
          restricted: true,
        });
        // Retention may have taken rows between the two reads of the range.
        if (!reader.isHere() || cursor < shown.removed()) continue;
        const batch: EventBatch = { kind: "events", events: found.events };
        cursor = found.complete ? upTo : endOf(batch, cursor);
        if (found.events.length > 0) yield batch;
      }
    }
  } finally {
    reader.leave();
  }
}

/** @throws BrokerError cursor_ahead */
export function refuseAhead(after: Seq, head: Seq): void {
  if (after <= head) return;
  throw new BrokerError(
    "cursor_ahead",
    `The cursor ${after} is above the session's head ${head}. Read again from 0, or from head.`,
    {
      details: { head },
    },
  );
}

function endOf(batch: EventBatch, cursor: Seq): Seq {
  return batch.events.at(-1)?.seq ?? cursor;
}
