import { setImmediate as yieldToOthers } from "node:timers/promises";
import { isJsonObject } from "../protocol/json.ts";
import type { Store } from "../store/port.ts";
import { bytesOf, integerOf, textOf } from "../store/rows.ts";

/** A session with events, as far as retention looks at it. */
export interface Candidate {
  readonly id: string;
  readonly tenant: string;
  readonly createdAtMs: number;
  readonly head: number;
  readonly removed: number;
}

/** How much the events up to a number take, in bytes of their envelopes. */
export interface Size {
  readonly upTo: number;
  readonly bytes: number;
}

const ROWS_PER_READ = 500;
/** The time stands in the first part of an envelope, unless its source or type is very long. */
const HEAD_BYTES = 1024;

export async function readCandidates(store: Store): Promise<Candidate[]> {
  const sql = `SELECT id, tenant, created_at_ms, head, removed FROM sessions
    WHERE head > removed AND id > ? ORDER BY id LIMIT ${ROWS_PER_READ}`;
  const found: Candidate[] = [];
  for (;;) {
    const rows = await store.read(sql, [found.at(-1)?.id ?? ""]);
    for (const row of rows) {
      found.push({
        id: textOf(row, "id"),
        tenant: textOf(row, "tenant"),
        createdAtMs: integerOf(row, "created_at_ms"),
        head: integerOf(row, "head"),
        removed: integerOf(row, "removed"),
      });
    }
    if (rows.length < ROWS_PER_READ) return found;
    await yieldToOthers();
  }
}

/** Numbers and sizes of the oldest events. */
export async function oldestEvents(store: Store, id: string, limit: number): Promise<{ seq: number; bytes: number }[]> {
  const sql = "SELECT seq, length(envelope) AS bytes FROM events WHERE session = ? ORDER BY seq LIMIT ?";
  const rows = await store.read(sql, [id, limit]);
  return rows.map((row) => ({ seq: integerOf(row, "seq"), bytes: integerOf(row, "bytes") }));
}

/** Goes on from what was counted before. */
export async function measure(store: Store, id: string, head: number, known?: Size): Promise<Size> {
  const sql = `SELECT COUNT(*) AS count, SUM(bytes) AS bytes, MAX(seq) AS seq FROM
    (SELECT seq, length(envelope) AS bytes FROM events WHERE session = ? AND seq > ? AND seq <= ? ORDER BY seq LIMIT ${ROWS_PER_READ}) AS part`;
  let { upTo, bytes } = known ?? { upTo: 0, bytes: 0 };
  while (upTo < head) {
    const [row] = await store.read(sql, [id, upTo, head]);
    const count = row === undefined ? 0 : integerOf(row, "count");
    if (row === undefined || count === 0) break;
    bytes += integerOf(row, "bytes");
    upTo = integerOf(row, "seq");
    if (count < ROWS_PER_READ) break;
    await yieldToOthers();
  }
  return { upTo: Math.max(upTo, head), bytes };
}

/** When the oldest event was appended. */
export async function oldestTime(store: Store, id: string): Promise<number | undefined> {
  return (await firstFrom(store, id, 0))?.atMs;
}

/** The last event in a range that is older than a time. Times of a session ascend, but for what a clock that was set does to them. */
export async function lastBefore(
  store: Store,
  id: string,
  { after, upTo }: { readonly after: number; readonly upTo: number },
  time: number,
): Promise<number | undefined> {
  let found: number | undefined;
  let low = after + 1;
  let high = upTo;
  while (low <= high) {
    const middle = Math.floor((low + high) / 2);
    const event = await firstFrom(store, id, middle);
    if (event === undefined || event.seq > high || event.atMs >= time) high = middle - 1;
    else {
      found = event.seq;
      low = event.seq + 1;
    }
  }
  return found;
}

async function firstFrom(store: Store, id: string, from: number): Promise<{ seq: number; atMs: number } | undefined> {
  const select =
    "SELECT seq, substr(envelope, 1, ?) AS envelope FROM events WHERE session = ? AND seq >= ? ORDER BY seq LIMIT 1";
  const [row] = await store.read(select, [HEAD_BYTES, id, from]);
  if (row === undefined) return undefined;
  const number = integerOf(row, "seq");
  // A quote inside a value is escaped, so this can only be the field itself.
  const time = /"timestamp_ms":(\d+)/.exec(Buffer.from(bytesOf(row, "envelope")).toString("latin1"))?.[1];
  return { seq: number, atMs: time === undefined ? await wholeTime(store, id, number) : Number(time) };
}

async function wholeTime(store: Store, id: string, number: number): Promise<number> {
  const [row] = await store.read("SELECT envelope FROM events WHERE session = ? AND seq = ?", [id, number]);
  const envelope: unknown = row && JSON.parse(Buffer.from(bytesOf(row, "envelope")).toString("utf8"));
  return isJsonObject(envelope) ? Number(envelope["timestamp_ms"]) : 0;
}
