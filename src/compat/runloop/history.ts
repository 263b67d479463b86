import { seq } from "../../protocol/ids.ts";
import type { EventLog } from "../../sessions/port.ts";
import { axonJson } from "./axon-view.ts";

/** A page is cut short here, after at least one event: lines may have 64 MiB. */
const PAGE_BYTES = 16 * 1024 * 1024;

export interface HistoryQuery {
  /** A sequence: only those below it. */
  readonly before?: number;
  readonly limit: number;
  /** With events that are not shown below driver. */
  readonly restricted: boolean;
}

interface Piece {
  readonly seq: number;
  readonly json: Uint8Array;
}

/** Events as this dialect shows them, newest first, as many as asked for and one more if there is one. */
async function* backwards(log: EventLog, { before, limit, restricted }: HistoryQuery): AsyncGenerator<Piece> {
  let below = before;
  while (true) {
    const query = { limit: limit + 1, restricted, ...(below !== undefined && { before: seq(below) }) };
    const { events, complete } = await log.back(query);
    for (const event of events) {
      const json = axonJson(event);
      if (json !== undefined) yield { seq: event.seq, json };
    }
    below = events.at(-1)?.seq;
    if (complete || below === undefined) return;
  }
}

/** The number of the last event that a replay starting now delivers; 0 when there is none. */
async function lastShown(log: EventLog, restricted: boolean): Promise<number> {
  for await (const { seq: last } of backwards(log, { limit: 1, restricted })) return last;
  return 0;
}

/** `{events, has_more, total_count?}` as JSON, spliced from what every viewer gets. */
export async function historyPage(log: EventLog, query: HistoryQuery, withTotal: boolean): Promise<Buffer> {
  const parts: Uint8Array[] = [];
  let bytes = 0;
  let first: number | undefined;
  let hasMore = false;
  for await (const piece of backwards(log, query)) {
    bytes += piece.json.length;
    hasMore = parts.length >= query.limit * 2 || (parts.length > 0 && bytes > PAGE_BYTES);
    if (hasMore) break;
    first ??= piece.seq;
    parts.push(piece.json, Buffer.from(","));
  }
  const newest = query.before === undefined ? (first ?? 0) : undefined;
  const total = withTotal ? `,"total_count":${newest ?? (await lastShown(log, query.restricted))}` : "";
  const end = Buffer.from(`],"has_more":${hasMore}${total}}`);
  return Buffer.concat([Buffer.from('{"events":['), ...parts.slice(0, -1), end]);
}
