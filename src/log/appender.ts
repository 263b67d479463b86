import { type Seq, seq } from "../protocol/ids.ts";
import { BrokerError } from "../protocol/problems.ts";
import type { Store, Write } from "../store/port.ts";
import { spliceEnvelope } from "./envelope.ts";
import type { LogOptions } from "./options.ts";
import type { EventLog, LogEvent, NewEvent, TurnEdge } from "./port.ts";
import type { Shown } from "./shown.ts";
import { insertEvent } from "./stored.ts";

/** The session's row as far as the log owns it. */
export interface LogRow {
  /** The last durable number. */
  readonly head: Seq;
  /** Numbers up to here may have been shown; 0 when nothing above head was. */
  readonly reserved: Seq;
  /** Retention removed the events up to here. */
  readonly removed: Seq;
}

/** The writing half of a session's log. */
export interface Appender {
  readonly append: EventLog["append"];
  /** Refuses more; resolves when what was handed in is settled. */
  close(): Promise<void>;
}

/**
 * Order is kept by one queue: an event is shown when it is durable, or is a preview within the durable reservation, and everything
 * before it has been shown.
 */
export function createAppender(
  sessionId: string,
  row: LogRow & { readonly last: Seq; readonly turnRuns: boolean },
  store: Store,
  shown: Shown,
  options: LogOptions,
): Appender {
  /** Handed in and not yet shown. */
  let hidden: LogEvent[] = [];
  let { last, turnRuns } = row;
  /** What has been committed, and what has been handed to the store so far. */
  let durable = { head: row.head, reserved: row.reserved };
  let asked = durable;
  let failure: BrokerError | undefined;
  let closed = false;
  let settled: Promise<void> = Promise.resolve();

  function accept(events: readonly NewEvent[]): LogEvent[] {
    let above = last;
    for (const { head } of events) {
      if (head.seq <= above) throw new RangeError(`event ${head.seq} is not above ${above}`);
      if (head.session_id !== sessionId) throw new RangeError(`event of ${head.session_id} in the log of ${sessionId}`);
      above = head.seq;
    }
    last = above;
    return events.map(({ head, payload, restricted = false }) => ({
      seq: head.seq,
      eventType: head.event_type,
      preview: head.preview === true,
      restricted,
      envelope: spliceEnvelope(head, payload),
      encoded: {},
    }));
  }

  /** How far the reservation must reach once the number `last` is out: well ahead while previews may come, else nowhere. */
  function reservation(head: Seq): Seq {
    if (!turnRuns && last <= head) return seq(0);
    const enough = asked.reserved - last >= options.reservedNumbers / 2;
    return enough ? asked.reserved : seq(last + options.reservedNumbers);
  }

  function release(): void {
    let count = 0;
    for (const event of hidden) {
      if (event.seq > durable.head && !(event.preview && event.seq <= durable.reserved)) break;
      count += 1;
    }
    if (count === 0) return;
    shown.show(hidden.slice(0, count));
    hidden = hidden.slice(count);
  }

  /** Hands writes to the store, with what `asked` will be once they are durable. */
  function commit(writes: readonly Write[], next: typeof asked, edge?: TurnEdge): Promise<void> {
    asked = next;
    const committed = (): void => {
      if (failure !== undefined) throw failure;
      durable = next;
      release();
      if (edge === "begin") shown.beginTurn();
      if (edge === "end") shown.endTurn(next.head);
    };
    const failed = (cause: unknown): never => {
      hidden = [];
      failure ??= storeLost(cause);
      throw failure;
    };
    settled = store.write(writes).then(committed, failed);
    settled.catch(() => {});
    return settled;
  }

  function reserveAhead(): void {
    const reserved = reservation(asked.head);
    if (reserved <= asked.reserved) return;
    void commit([{ sql: "UPDATE sessions SET reserved = ? WHERE id = ?", params: [reserved, sessionId] }], {
      ...asked,
      reserved,
    });
  }

  async function append(
    events: readonly NewEvent[],
    writes: readonly Write[] = [],
    edge?: TurnEdge,
    mark?: number,
  ): Promise<void> {
    if (failure !== undefined) throw failure;
    if (closed) throw new BrokerError("internal", "The session's log is closed. Open the session again.");
    const added = accept(events);
    for (const event of added) hidden.push(event);
    if (edge !== undefined) turnRuns = edge === "begin";
    const kept = added.filter((event) => !event.preview);
    if (kept.length === 0 && writes.length === 0 && edge === undefined) {
      reserveAhead();
      release();
      if (hidden.length > 0) await settled;
      return;
    }
    const head = kept.at(-1)?.seq ?? asked.head;
    const next = { head, reserved: reservation(head) };
    const inserts = kept.map((event) => insertEvent(sessionId, event));
    await commit([advance(sessionId, asked.head, next, mark), ...inserts, ...writes], next, edge);
  }

  return {
    append,
    async close() {
      closed = true;
      await settled.catch(() => {});
    },
  };
}

/** Fails (head may not be NULL) unless all before it was applied: what follows a failed append must not become durable either. */
function advance(sessionId: string, from: Seq, to: { head: Seq; reserved: Seq }, mark?: number): Write {
  return {
    sql: "UPDATE sessions SET head = CASE WHEN head = ? THEN ? END, reserved = ?, mark = COALESCE(?, mark) WHERE id = ?",
    params: [from, to.head, to.reserved, mark ?? null, sessionId],
  };
}

function storeLost(cause: unknown): BrokerError {
  return new BrokerError(
    "internal",
    "The event could not be made durable, so nobody was shown it. Open the session again.",
    { cause },
  );
}
