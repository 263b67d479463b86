import { type Seq, seq } from "../protocol/ids.ts";
import { BrokerError } from "../protocol/problems.ts";
import type { Store } from "../store/port.ts";
import { createAppender, type LogRow } from "./appender.ts";
import { followLog, refuseAhead, type Source } from "./follow.ts";
import type { LogOptions } from "./options.ts";
import type { Continuation, EventLog, OpenedLog, Page, PageQuery } from "./port.ts";
import { createShown } from "./shown.ts";
import { firstAvailable, readOne, readRange } from "./stored.ts";

/** An open log, as the collection of logs holds it. */
export interface SessionLog {
  readonly opened: OpenedLog;
  /** Readers no longer get the events up to a number: they are about to be deleted. */
  remove(upTo: Seq): void;
  /** Ends readers; resolves when what was appended is settled. */
  close(): Promise<void>;
}

export function createSessionLog(
  sessionId: string,
  row: LogRow,
  store: Store,
  options: LogOptions,
  continuation?: Continuation,
): SessionLog {
  const last = seq(Math.max(row.head, continuation?.last ?? row.reserved));
  const shown = createShown({ head: last, removed: row.removed }, options);
  const turnRuns = continuation?.turnRuns === true;
  if (turnRuns) shown.beginTurn();
  const appender = createAppender(sessionId, { ...row, last, turnRuns }, store, shown, options);
  const source: Source = { sessionId, store, shown, options };

  const log: EventLog = {
    append: appender.append,
    follow: (after, signal) => followLog(source, after, signal),
    page: (query) => readPage(source, query),
    back: ({ before, limit, restricted }) => {
      const newest = shown.head();
      const upTo = before === undefined || before > newest ? newest : seq(Math.max(0, before - 1));
      const range = { after: shown.removed(), upTo, limit, restricted, maxBytes: options.pageBytes };
      return readRange(store, sessionId, range, "DESC");
    },
    head: shown.head,
    async read(wanted) {
      if (wanted > shown.head() || wanted <= shown.removed()) return undefined;
      const recent = shown.tail.find(wanted);
      if (recent !== undefined) return recent.preview ? undefined : recent;
      return readOne(store, sessionId, wanted);
    },
  };
  return {
    opened: { log, last, jumped: continuation === undefined && row.reserved > row.head },
    remove: shown.remove,
    async close() {
      shown.close();
      await appender.close();
    },
  };
}

async function readPage({ sessionId, store, shown, options }: Source, query: PageQuery): Promise<Page> {
  const head = shown.head();
  refuseAhead(query.after, head);
  const found = await readRange(store, sessionId, { ...query, upTo: head, maxBytes: options.pageBytes });
  // After the read: what retention removed meanwhile may be missing from it.
  if (query.after < shown.removed()) {
    const first = await firstAvailable(store, sessionId, shown.removed(), head);
    throw new BrokerError(
      "history_gone",
      `Retention removed what follows ${query.after}. Read again after ${first - 1}.`,
      {
        details: { first_available: first },
      },
    );
  }
  return { events: found.events, head, next: found.complete ? head : (found.events.at(-1)?.seq ?? query.after) };
}
