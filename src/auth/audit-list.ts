import type { AuditKind } from "../protocol/audit.ts";
import type { SqlValue, Store } from "../store/port.ts";
import { integerOf, textOf } from "../store/rows.ts";
import type { AuditRecord } from "./audit.ts";

/** Which records, oldest first. Times are milliseconds since the epoch: from `since`, to before `until`. */
export interface AuditFilter {
  /** undefined = every tenant (operators). */
  readonly tenant?: string | undefined;
  /** Only those with a higher id. */
  readonly after: number;
  readonly limit: number;
  readonly session_id?: string | undefined;
  readonly kind?: AuditKind | undefined;
  /** The id of a key, `server`, or a policy's name. */
  readonly actor?: string | undefined;
  readonly since?: number | undefined;
  readonly until?: number | undefined;
}

/** Records, and the `after` to go on with; fewer than `limit` are the last ones so far. */
export interface AuditPage {
  readonly entries: readonly AuditRecord[];
  readonly next: number;
}

export async function listAudit(store: Store, filter: AuditFilter): Promise<AuditPage> {
  const { tenant, after, limit, session_id, kind, actor, since, until } = filter;
  const wanted: readonly (readonly [string, SqlValue | undefined])[] = [
    ["id > ?", after],
    ["tenant = ?", tenant],
    ["session = ?", session_id],
    ["kind = ?", kind],
    ["actor = ?", actor],
    ["at_ms >= ?", since],
    ["at_ms < ?", until],
  ];
  const conditions: string[] = [];
  const params: SqlValue[] = [];
  for (const [condition, value] of wanted) {
    if (value === undefined) continue;
    conditions.push(condition);
    params.push(value);
  }
  const sql = `SELECT id, entry FROM audit WHERE ${conditions.join(" AND ")} ORDER BY id LIMIT ?`;
  const rows = await store.read(sql, [...params, limit]);
  const entries = rows.map((row): AuditRecord => ({ id: integerOf(row, "id"), ...JSON.parse(textOf(row, "entry")) }));
  return { entries, next: entries.at(-1)?.id ?? after };
}
