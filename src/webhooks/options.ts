/** How webhooks behave; everything has a default. */
export interface WebhookOptions {
  readonly perTenant: number;
  /** Deliveries of one webhook that may wait; beyond, the oldest is dropped. */
  readonly queueLimit: number;
  /** Finished deliveries of one webhook that stay visible. */
  readonly keptLimit: number;
  /** A larger event is sent without the large fields of its payload. In bytes. */
  readonly bodyLimitBytes: number;
  /** One call, from the name's resolution to the end of its answer. */
  readonly callTimeoutMs: number;
  /** The wait after the first failure; it doubles up to the longest. */
  readonly minRetryMs: number;
  readonly maxRetryMs: number;
  /** A delivery fails after so many calls, or when it is this old. */
  readonly attempts: number;
  readonly maxAgeMs: number;
  /** How long an answer link is good for. */
  readonly answerLinkMs: number;
}

export const WEBHOOK_DEFAULTS: WebhookOptions = Object.freeze({
  perTenant: 20,
  queueLimit: 1_000,
  keptLimit: 1_000,
  bodyLimitBytes: 256 * 1024,
  callTimeoutMs: 10_000,
  minRetryMs: 1_000,
  maxRetryMs: 3_600_000,
  attempts: 15,
  maxAgeMs: 24 * 3_600_000,
  answerLinkMs: 24 * 3_600_000,
});

/**
 * How long to wait after call number `attempt` (from 1) has failed: between half and all of a time that doubles, so that many deliveries
 * do not return to a receiver at the same moment. `random` is from 0 up to 1.
 */
export function retryDelayMs(attempt: number, random: number, { minRetryMs, maxRetryMs }: WebhookOptions): number {
  const ceiling = Math.min(maxRetryMs, minRetryMs * 2 ** (attempt - 1));
  return Math.ceil(ceiling / 2 + (random * ceiling) / 2);
}
