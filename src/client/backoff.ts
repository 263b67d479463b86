/** How a lost connection is tried again. */
export interface BackoffOptions {
  /** Longest wait before the first try again. */
  readonly minMs: number;
  /** Longest wait before any try. */
  readonly maxMs: number;
}

export const BACKOFF_DEFAULTS: BackoffOptions = Object.freeze({ minMs: 250, maxMs: 15_000 });

/**
 * How long to wait before try number `attempt` (from 0): between half and all of a ceiling that doubles, so that the clients of a
 * restarted server do not return at the same moment. `random` is from 0 up to 1.
 */
export function backoffMs(attempt: number, random: number, options: BackoffOptions): number {
  // 2 ** 1024 is Infinity, which min() takes as well as any other number.
  const ceiling = Math.min(options.maxMs, options.minMs * 2 ** attempt);
  return ceiling / 2 + (random * ceiling) / 2;
}
