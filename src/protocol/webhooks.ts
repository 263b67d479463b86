/** System events that a webhook can be told of (PROTOCOL.md 9.1). */
export const WEBHOOK_EVENTS = [
  "request.opened",
  "request.resolved",
  "turn.completed",
  "turn.failed",
  "session.state",
] as const;
export type WebhookEvent = (typeof WEBHOOK_EVENTS)[number];

/** What POST /v1/webhooks asks for. */
export interface NewWebhook {
  readonly url: string;
  /** Default: all of them. */
  readonly events?: readonly WebhookEvent[];
  /** Signs the deliveries; made if absent. */
  readonly secret?: string;
}

/** A webhook as its admins see it: without its secret. */
export interface WebhookView {
  readonly id: string;
  readonly tenant: string;
  readonly url: string;
  readonly events: readonly WebhookEvent[];
  readonly created_at_ms: number;
  /** Set when its receiver answered 410: nothing is sent to it any more. */
  readonly disabled_at_ms: number | null;
  /** Deliveries that wait. */
  readonly queued: number;
  /** Deliveries that the bounded queue lost, the oldest first. */
  readonly dropped: number;
}

export type DeliveryState = "pending" | "delivered" | "failed";

/** One event on its way to one webhook. */
export interface DeliveryView {
  /** Its place in the webhook's order: ascending, numbers may be absent. */
  readonly place: number;
  /** `<session>:<seq>`: the same however often it is sent. */
  readonly event_id: string;
  readonly event_type: string;
  readonly state: DeliveryState;
  /** Calls made so far. */
  readonly attempts: number;
  readonly created_at_ms: number;
  /** While it waits: when it is tried next. */
  readonly next_at_ms?: number;
  readonly done_at_ms?: number;
  /** HTTP status of the last call, when there was one. */
  readonly status?: number;
  /** Why the last call failed. */
  readonly reason?: string;
}
