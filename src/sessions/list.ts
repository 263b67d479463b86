import type { SessionView } from "../protocol/events.ts";
import { BrokerError } from "../protocol/problems.ts";
import type { SqlValue, Store } from "../store/port.ts";
import type { SessionFilter } from "./port.ts";
import { decodeRow, storedView } from "./rows.ts";

/** Where a page of the list ended: newest first, so the next page is older. */
interface Mark {
  readonly createdAtMs: number;
  readonly id: string;
}

const encodeMark = ({ createdAtMs, id }: Mark): string => Buffer.from(`${createdAtMs}:${id}`).toString("base64url");

function decodeMark(cursor: string): Mark {
  const [, time, id] = /^(\d{1,15}):(.+)$/.exec(Buffer.from(cursor, "base64url").toString("utf8")) ?? [];
  if (time !== undefined && id !== undefined) return { createdAtMs: Number(time), id };
  throw new BrokerError("bad_request", "cursor: is not one that this list gave out; start without it.", {
    details: { field: "cursor" },
  });
}

function conditions(filter: SessionFilter): { sql: string; params: SqlValue[] } {
  const parts: { sql: string; params: SqlValue[] }[] = [];
  if (filter.tenant !== undefined) parts.push({ sql: "tenant = ?", params: [filter.tenant] });
  if (filter.state !== undefined) parts.push({ sql: "state = ?", params: [filter.state] });
  if (filter.name !== undefined) parts.push({ sql: "name = ?", params: [filter.name] });
  for (const [key, value] of Object.entries(filter.metadata ?? {})) {
    parts.push({
      sql: "EXISTS (SELECT 1 FROM json_each(metadata) AS entry WHERE entry.key = ? AND entry.value = ?)",
      params: [key, value],
    });
  }
  if (filter.id !== undefined) parts.push({ sql: "id = ?", params: [filter.id] });
  if (filter.open === true) parts.push({ sql: "state <> 'ended'", params: [] });
  if (filter.namePrefix !== undefined)
    parts.push({ sql: "substr(name, 1, length(?)) = ?", params: [filter.namePrefix, filter.namePrefix] });
  if (filter.search !== undefined)
    parts.push({ sql: "(id = ? OR instr(lower(name), lower(?)) > 0)", params: [filter.search, filter.search] });
  for (const [key, values] of Object.entries(filter.metadataIn ?? {})) {
    parts.push({
      sql: `EXISTS (SELECT 1 FROM json_each(metadata) AS entry WHERE entry.key = ? AND entry.value IN (${values.map(() => "?").join(", ")}))`,
      params: [key, ...values],
    });
  }
  if (filter.cursor !== undefined) {
    const mark = decodeMark(filter.cursor);
    parts.push({
      sql: "(created_at_ms < ? OR (created_at_ms = ? AND id < ?))",
      params: [mark.createdAtMs, mark.createdAtMs, mark.id],
    });
  }
  return { sql: parts.map((part) => part.sql).join(" AND ") || "1 = 1", params: parts.flatMap((part) => part.params) };
}

/** Where the list goes on after a session. @throws BrokerError bad_request when there is none of that id for this filter's tenant */
async function cursorAfter(store: Store, { afterId, tenant }: SessionFilter): Promise<string | undefined> {
  if (afterId === undefined) return undefined;
  const sql = `SELECT created_at_ms FROM sessions WHERE id = ?${tenant === undefined ? "" : " AND tenant = ?"}`;
  const [row] = await store.read(sql, tenant === undefined ? [afterId] : [afterId, tenant]);
  if (row !== undefined) return encodeMark({ createdAtMs: Number(row["created_at_ms"]), id: afterId });
  throw new BrokerError("bad_request", "starting_after: is no id of this list; start without it.", {
    details: { field: "starting_after" },
  });
}

/** How many sessions a filter finds, whatever its page. */
export async function countSessions(store: Store, { cursor: _page, ...filter }: SessionFilter): Promise<number> {
  const { sql, params } = conditions(filter);
  const [row] = await store.read(`SELECT count(*) AS found FROM sessions WHERE ${sql}`, params);
  return Number(row?.["found"] ?? 0);
}

const RUNNER = "(SELECT runner FROM session_runner WHERE session = sessions.id AND current = 1) AS runner";

/** A page of sessions, newest first. `liveView` gives what is known beyond the store. @throws BrokerError bad_request for a foreign cursor */
export async function listSessions(
  store: Store,
  filter: SessionFilter,
  liveView: (id: string) => SessionView | undefined,
): Promise<{ sessions: SessionView[]; next?: string }> {
  const cursor = await cursorAfter(store, filter);
  const { sql, params } = conditions(cursor === undefined ? filter : { ...filter, cursor });
  const rows = await store.read(
    `SELECT *, ${RUNNER} FROM sessions WHERE ${sql} ORDER BY created_at_ms DESC, id DESC LIMIT ?`,
    [...params, filter.limit + 1],
  );
  const page = rows.slice(0, filter.limit);
  const last = page.at(-1);
  const sessions = page.map((row) => {
    const decoded = decodeRow(row);
    const { runner } = row;
    return liveView(decoded.id) ?? storedView(decoded, typeof runner === "string" ? runner : undefined);
  });
  return { sessions, ...(rows.length > filter.limit && last && { next: encodeMark(decodeRow(last)) }) };
}
