/** Bounds of the logs' memory, for each session. */
export interface LogOptions {
  /** Recent events kept in memory while a turn runs or a reader is behind; who is behind these reads from the store. */
  readonly tailBytes: number;
  /** The same once no turn runs and nobody is behind. */
  readonly idleTailBytes: number;
  /** A batch of follow holds at most this much, or one event. */
  readonly batchBytes: number;
  /** A page holds at most this much, or one event; it may be shorter than its limit. */
  readonly pageBytes: number;
  /** How many numbers a reservation reaches ahead: previews may be shown up to it without waiting for the disk. */
  readonly reservedNumbers: number;
}

export const LOG_DEFAULTS: LogOptions = Object.freeze({
  tailBytes: 8 * 1024 * 1024,
  idleTailBytes: 64 * 1024,
  batchBytes: 256 * 1024,
  pageBytes: 4 * 1024 * 1024,
  reservedNumbers: 4_096,
});
