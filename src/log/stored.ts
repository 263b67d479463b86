import { type Seq, seq } from "../protocol/ids.ts";
import type { Row, SqlValue, Store, Write } from "../store/port.ts";
import { bytesOf, integerOf, textOf } from "../store/rows.ts";
import type { LogEvent } from "./port.ts";

/** At most this many rows are looked at for one batch or page. */
const MAX_ROWS = 1_000;

/** Which events to read: above `after`, up to `upTo`. */
export interface Range {
  readonly after: Seq;
  readonly upTo: Seq;
  readonly limit?: number;
  /** At most this much, or one event. */
  readonly maxBytes: number;
  readonly eventType?: string;
  /** False leaves out the restricted ones. */
  readonly restricted: boolean;
}

export interface Found {
  readonly events: readonly LogEvent[];
  /** True when nothing that was asked for is left out. */
  readonly complete: boolean;
}

/** Durable events of a session in a range, ascending or from its end. */
export async function readRange(
  store: Store,
  sessionId: string,
  range: Range,
  order: "ASC" | "DESC" = "ASC",
): Promise<Found> {
  const limit = Math.min(range.limit ?? MAX_ROWS, MAX_ROWS);
  const { where, params } = conditions(sessionId, range);
  // Sizes first: SQLite knows them without reading the blobs, and a page of big events must not be read to be thrown away.
  const sizes = await store.read(
    `SELECT seq, length(envelope) AS bytes FROM events WHERE ${where} ORDER BY seq ${order} LIMIT ${limit}`,
    params,
  );
  const count = countWithin(sizes, range.maxBytes);
  const lastRow = sizes[count - 1];
  if (lastRow === undefined) return { events: [], complete: limit > 0 };
  const { where: narrow, params: narrowParams } = conditions(sessionId, {
    ...range,
    ...reached(integerOf(lastRow, "seq"), order),
  });
  const rows = await store.read(
    `SELECT seq, event_type, restricted, envelope FROM events WHERE ${narrow} ORDER BY seq ${order}`,
    narrowParams,
  );
  return { events: rows.map(toEvent), complete: count === sizes.length && sizes.length < limit };
}

const reached = (last: number, order: "ASC" | "DESC"): Partial<Range> =>
  order === "ASC" ? { upTo: seq(last) } : { after: seq(last - 1) };

/** The durable event with this number. */
export async function readOne(store: Store, sessionId: string, wanted: Seq): Promise<LogEvent | undefined> {
  const sql = "SELECT seq, event_type, restricted, envelope FROM events WHERE session = ? AND seq = ?";
  const [row] = await store.read(sql, [sessionId, wanted]);
  return row === undefined ? undefined : toEvent(row);
}

/** The first durable event above `removed` that was shown, else the number after `removed`. */
export async function firstAvailable(store: Store, sessionId: string, removed: Seq, head: Seq): Promise<Seq> {
  const sql = "SELECT seq FROM events WHERE session = ? AND seq > ? AND seq <= ? ORDER BY seq LIMIT 1";
  const [row] = await store.read(sql, [sessionId, removed, head]);
  return row === undefined ? seq(removed + 1) : seq(integerOf(row, "seq"));
}

/** The statement that keeps an event. */
export function insertEvent(sessionId: string, event: LogEvent): Write {
  return {
    sql: "INSERT INTO events (session, seq, event_type, restricted, envelope) VALUES (?, ?, ?, ?, ?)",
    params: [sessionId, event.seq, event.eventType, event.restricted ? 1 : 0, event.envelope],
  };
}

function conditions(sessionId: string, range: Range): { where: string; params: SqlValue[] } {
  const params: SqlValue[] = [sessionId, range.after, range.upTo];
  let where = "session = ? AND seq > ? AND seq <= ?";
  if (range.eventType !== undefined) {
    where += " AND event_type = ?";
    params.push(range.eventType);
  }
  if (!range.restricted) where += " AND restricted = 0";
  return { where, params };
}

function countWithin(sizes: readonly Row[], maxBytes: number): number {
  let bytes = 0;
  for (const [index, row] of sizes.entries()) {
    bytes += integerOf(row, "bytes");
    if (index > 0 && bytes > maxBytes) return index;
  }
  return sizes.length;
}

function toEvent(row: Row): LogEvent {
  return {
    seq: seq(integerOf(row, "seq")),
    eventType: textOf(row, "event_type"),
    preview: false,
    restricted: integerOf(row, "restricted") === 1,
    envelope: bytesOf(row, "envelope"),
    encoded: {},
  };
}
