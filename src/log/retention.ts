import { type Seq, seq } from "../protocol/ids.ts";
import type { Store } from "../store/port.ts";
import { integerOf } from "../store/rows.ts";

/** Rows removed in one transaction: others' commits go in between. */
const ROWS_PER_DELETE = 1_000;

/** The highest durable number up to `upTo`, which is what removing up to there removes; undefined when there is none. */
export async function lastUpTo(store: Store, sessionId: string, upTo: Seq): Promise<Seq | undefined> {
  const sql = "SELECT seq FROM events WHERE session = ? AND seq <= ? ORDER BY seq DESC LIMIT 1";
  const [row] = await store.read(sql, [sessionId, upTo]);
  return row === undefined ? undefined : seq(integerOf(row, "seq"));
}

/** Says durably that the events up to a number are gone, before the first of them is. */
export function markRemoved(store: Store, sessionId: string, upTo: Seq): Promise<void> {
  return store.write([
    { sql: "UPDATE sessions SET removed = ? WHERE id = ? AND removed < ?", params: [upTo, sessionId, upTo] },
  ]);
}

/** Deletes the events up to a number, oldest first. */
export async function deleteEvents(store: Store, sessionId: string, upTo: Seq): Promise<void> {
  for (;;) {
    const sql = `SELECT seq FROM events WHERE session = ? AND seq <= ? ORDER BY seq LIMIT ${ROWS_PER_DELETE}`;
    const rows = await store.read(sql, [sessionId, upTo]);
    const lastRow = rows.at(-1);
    if (lastRow === undefined) return;
    await store.write([
      { sql: "DELETE FROM events WHERE session = ? AND seq <= ?", params: [sessionId, integerOf(lastRow, "seq")] },
    ]);
    if (rows.length < ROWS_PER_DELETE) return;
  }
}
