import {
  type DeliveryState,
  type DeliveryView,
  WEBHOOK_EVENTS,
  type WebhookEvent,
  type WebhookView,
} from "../protocol/webhooks.ts";
import type { Row, Store, Write } from "../store/port.ts";
import type { Sealer } from "../store/seal.ts";

/** A webhook as it is in memory. The secret is needed in plain to sign with; in the database it is sealed. */
export interface StoredWebhook {
  readonly id: string;
  readonly tenant: string;
  readonly url: string;
  readonly events: readonly WebhookEvent[];
  readonly secret: string;
  readonly created_at_ms: number;
  readonly disabled_at_ms: number | null;
}

/** What waits to be sent. */
export interface Delivery {
  readonly webhook: string;
  readonly place: number;
  readonly event_id: string;
  readonly event_type: string;
  readonly session: string;
  /** Of a `request.opened` that a person can answer by a link. */
  readonly requestId: string | undefined;
  readonly body: string;
  readonly attempts: number;
  readonly created_at_ms: number;
  readonly next_at_ms: number;
}

/** How a call ended. `end`: the delivery is over; else it is tried again then. */
export interface CallResult {
  readonly status?: number;
  readonly reason?: string;
  readonly end?: Exclude<DeliveryState, "pending">;
  readonly nextAtMs: number;
}

const isEvent = (value: unknown): value is WebhookEvent => WEBHOOK_EVENTS.some((event) => event === value);
const isNull = (row: Row, column: string): boolean => row[column] === null || row[column] === undefined;
const text = (row: Row, column: string): string => String(row[column]);
const number = (row: Row, column: string): number => Number(row[column]);

const aboutWebhook = (tenant: string, id: string): readonly string[] => ["webhooks", tenant, id];

/** The signing secret; of a row that is older than sealing, as it stands there. */
function openSecret(row: Row, sealer: Sealer): string {
  if (isNull(row, "sealed")) return text(row, "secret");
  return sealer.open(text(row, "sealed"), aboutWebhook(text(row, "tenant"), text(row, "id")));
}

function decodeWebhook(row: Row): Omit<StoredWebhook, "secret"> {
  const events: unknown = JSON.parse(text(row, "events"));
  return {
    id: text(row, "id"),
    tenant: text(row, "tenant"),
    url: text(row, "url"),
    events: Array.isArray(events) ? events.filter(isEvent) : [],
    created_at_ms: number(row, "created_at_ms"),
    disabled_at_ms: isNull(row, "disabled_at_ms") ? null : number(row, "disabled_at_ms"),
  };
}

const saveSealed = (sealer: Sealer, { tenant, id, secret }: StoredWebhook): Write => ({
  sql: "UPDATE webhooks SET secret = '', sealed = ? WHERE id = ?",
  params: [sealer.seal(secret, aboutWebhook(tenant, id)), id],
});

/**
 * All webhooks, each with the highest place that it has given out. Secrets that are not sealed, or by an older key, are sealed now.
 * @throws BrokerError config_invalid (sealed with a key that was not given)
 */
export async function readWebhooks(store: Store, sealer: Sealer): Promise<{ webhook: StoredWebhook; place: number }[]> {
  const rows = await store.read(
    `SELECT w.*, (SELECT MAX(d.place) FROM webhook_deliveries d WHERE d.webhook = w.id) AS place
      FROM webhooks w ORDER BY w.created_at_ms, w.id`,
  );
  const found = rows.map((row) => ({
    webhook: { ...decodeWebhook(row), secret: openSecret(row, sealer) },
    place: isNull(row, "place") ? 0 : number(row, "place"),
    current: !isNull(row, "sealed") && sealer.isCurrent(text(row, "sealed")),
  }));
  const stale = found.filter(({ current }) => !current);
  if (stale.length > 0) await store.write(stale.map(({ webhook }) => saveSealed(sealer, webhook)));
  return found;
}

export async function listWebhooks(store: Store, tenant: string): Promise<WebhookView[]> {
  const rows = await store.read(
    `SELECT w.*, (SELECT COUNT(*) FROM webhook_deliveries d WHERE d.webhook = w.id AND d.state = 'pending') AS queued
      FROM webhooks w WHERE w.tenant = ? ORDER BY w.created_at_ms, w.id`,
    [tenant],
  );
  return rows.map((row) => ({
    ...decodeWebhook(row),
    queued: number(row, "queued"),
    dropped: number(row, "dropped"),
  }));
}

export function insertWebhook(
  { id, tenant, url, events, secret, created_at_ms }: StoredWebhook,
  sealer: Sealer,
): Write {
  return {
    sql: "INSERT INTO webhooks (id, tenant, url, events, secret, sealed, created_at_ms) VALUES (?, ?, ?, ?, '', ?, ?)",
    params: [id, tenant, url, JSON.stringify(events), sealer.seal(secret, aboutWebhook(tenant, id)), created_at_ms],
  };
}

export const deleteWebhook = (id: string): Write[] => [
  { sql: "DELETE FROM webhooks WHERE id = ?", params: [id] },
  { sql: "DELETE FROM webhook_deliveries WHERE webhook = ?", params: [id] },
];

/** The receiver wants no more: what waits has failed with it. */
export const disableWebhook = (id: string, nowMs: number): Write[] => [
  { sql: "UPDATE webhooks SET disabled_at_ms = ? WHERE id = ?", params: [nowMs, id] },
  {
    sql: `UPDATE webhook_deliveries SET state = 'failed', reason = 'the webhook was disabled', done_at_ms = ?, body = ''
      WHERE webhook = ? AND state = 'pending'`,
    params: [nowMs, id],
  },
];

/** Nothing is stored for a webhook that was removed or disabled while the event was on its way to the disk. */
export function insertDelivery(delivery: Delivery): Write {
  const { webhook, place, event_id, event_type, session, requestId, body, created_at_ms } = delivery;
  return {
    sql: `INSERT INTO webhook_deliveries
      (webhook, place, event_id, event_type, session, request_id, body, state, created_at_ms, next_at_ms)
      SELECT id, ?, ?, ?, ?, ?, ?, 'pending', ?, ? FROM webhooks WHERE id = ? AND disabled_at_ms IS NULL`,
    params: [place, event_id, event_type, session, requestId ?? null, body, created_at_ms, created_at_ms, webhook],
  };
}

/** The bound of a queue: what waits at `upTo` or before is dropped and counted. */
export function dropOldest(webhook: string, upTo: number): Write[] {
  const waiting = "FROM webhook_deliveries WHERE webhook = ? AND state = 'pending' AND place <= ?";
  return [
    {
      sql: `UPDATE webhooks SET dropped = dropped + (SELECT COUNT(*) ${waiting}) WHERE id = ? AND EXISTS (SELECT 1 ${waiting})`,
      params: [webhook, upTo, webhook, webhook, upTo],
    },
    { sql: `DELETE ${waiting}`, params: [webhook, upTo] },
  ];
}

/** The first that waits. */
export async function readNext(store: Store, webhook: string): Promise<Delivery | undefined> {
  const [row] = await store.read(
    "SELECT * FROM webhook_deliveries WHERE webhook = ? AND state = 'pending' ORDER BY place LIMIT 1",
    [webhook],
  );
  if (row === undefined) return undefined;
  return {
    webhook,
    place: number(row, "place"),
    event_id: text(row, "event_id"),
    event_type: text(row, "event_type"),
    session: text(row, "session"),
    requestId: isNull(row, "request_id") ? undefined : text(row, "request_id"),
    body: text(row, "body"),
    attempts: number(row, "attempts"),
    created_at_ms: number(row, "created_at_ms"),
    next_at_ms: number(row, "next_at_ms"),
  };
}

/** What a call has led to. A finished delivery keeps no body, and only so many finished ones stay. */
export function saveCall({ webhook, place }: Delivery, call: CallResult, nowMs: number, keptLimit: number): Write[] {
  const { end, status, reason, nextAtMs } = call;
  const save = {
    sql: `UPDATE webhook_deliveries SET attempts = attempts + 1, state = ?, status = ?, reason = ?, next_at_ms = ?,
      done_at_ms = ?, body = CASE WHEN ? = 1 THEN '' ELSE body END WHERE webhook = ? AND place = ?`,
    params: [
      end ?? "pending",
      status ?? null,
      reason ?? null,
      nextAtMs,
      end === undefined ? null : nowMs,
      end === undefined ? 0 : 1,
      webhook,
      place,
    ],
  };
  if (end === undefined) return [save];
  const trim = "DELETE FROM webhook_deliveries WHERE webhook = ? AND place <= ? AND state <> 'pending'";
  return [save, { sql: trim, params: [webhook, place - keptLimit] }];
}

const isState = (value: string): value is DeliveryState => ["pending", "delivered", "failed"].includes(value);

function decodeView(row: Row): DeliveryView {
  const state = text(row, "state");
  return {
    place: number(row, "place"),
    event_id: text(row, "event_id"),
    event_type: text(row, "event_type"),
    state: isState(state) ? state : "failed",
    attempts: number(row, "attempts"),
    created_at_ms: number(row, "created_at_ms"),
    ...(state === "pending" && { next_at_ms: number(row, "next_at_ms") }),
    ...(!isNull(row, "done_at_ms") && { done_at_ms: number(row, "done_at_ms") }),
    ...(!isNull(row, "status") && { status: number(row, "status") }),
    ...(!isNull(row, "reason") && { reason: text(row, "reason") }),
  };
}

/** Deliveries above a place, ascending, without their bodies. */
export async function listDeliveries(
  store: Store,
  webhook: string,
  { after, limit }: { readonly after: number; readonly limit: number },
): Promise<DeliveryView[]> {
  const rows = await store.read(
    `SELECT place, event_id, event_type, state, attempts, created_at_ms, next_at_ms, done_at_ms, status, reason
      FROM webhook_deliveries WHERE webhook = ? AND place > ? ORDER BY place LIMIT ?`,
    [webhook, after, limit],
  );
  return rows.map(decodeView);
}
