import type { DeliveryView, NewWebhook, WebhookView } from "../protocol/webhooks.ts";
import type { Store, Write } from "../store/port.ts";
import type { Sealer } from "../store/seal.ts";
import type { AnswerLink, TellableEvent } from "./body.ts";
import type { WebhookOptions } from "./options.ts";
import type { Resolve } from "./target.ts";

/** What an answer link is to be for. */
export interface AnswerAsk {
  readonly webhookId: string;
  readonly tenant: string;
  readonly sessionId: string;
  readonly requestId: string;
  readonly lifeMs: number;
}

export interface WebhooksParts {
  readonly store: Store;
  /** Encrypts signing secrets at rest. */
  readonly sealer: Sealer;
  readonly options?: Partial<WebhookOptions>;
  /** Exact host names or addresses that may be private, and may be called without TLS. */
  readonly allowedHosts?: readonly string[];
  /** Makes a link by which a person can answer. Default: deliveries carry none. */
  readonly answerLink?: ((ask: AnswerAsk) => Promise<AnswerLink>) | undefined;
  /** Milliseconds since the epoch. */
  readonly now?: () => number;
  /** Default: the system's resolver. */
  readonly resolve?: Resolve;
  /** The worker of a webhook has failed (not its receiver): for the server's own log. */
  readonly report: (webhookId: string, error: unknown) => void;
}

/** Writes that belong into the transaction of a change, such as its audit row. */
export type Also = (webhook: WebhookView) => readonly Write[];

/** The webhooks of all tenants, and the worker that delivers to them. */
export interface Webhooks {
  /** The store for the logs: a commit through it wakes the worker. */
  readonly store: Store;
  /** The writes that queue an event for the webhooks of its tenant that want it; for the transaction of the event itself. */
  outbox(session: { readonly id: string; readonly tenant: string }, event: TellableEvent): readonly Write[];
  /** The secret is told here and never again. @throws BrokerError bad_request, rate_limited (too many) */
  create(tenant: string, wanted: NewWebhook, also: Also): Promise<WebhookView & { readonly secret: string }>;
  list(tenant: string): Promise<readonly WebhookView[]>;
  /** With all that waits for it. @throws BrokerError not_found */
  remove(tenant: string, id: string, also: Also): Promise<void>;
  /** `next`: ask again after it. @throws BrokerError not_found */
  deliveries(
    tenant: string,
    id: string,
    page: { readonly after: number; readonly limit: number },
  ): Promise<{ readonly deliveries: readonly DeliveryView[]; readonly next: number }>;
  /** Cuts calls off and starts no more; what waits is stored. Events may still be queued. */
  close(): Promise<void>;
}
