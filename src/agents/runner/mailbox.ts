/** Hands one thing at a time from who has it to who waits for it. */
export interface Mailbox<T> {
  /** Replaces what nobody has taken yet, and returns that. */
  give(item: T): T | undefined;
  /** Rejects when the signal aborts. */
  take(signal: AbortSignal): Promise<T>;
}

export function createMailbox<T>(): Mailbox<T> {
  let waiting: T | undefined;
  let taker: ((item: T) => void) | undefined;
  return {
    give(item) {
      if (taker !== undefined) {
        taker(item);
        taker = undefined;
        return undefined;
      }
      const replaced = waiting;
      waiting = item;
      return replaced;
    },
    async take(signal) {
      const ready = waiting;
      waiting = undefined;
      if (ready !== undefined) return ready;
      signal.throwIfAborted();
      const { promise, resolve, reject } = Promise.withResolvers<T>();
      const abort = (): void => reject(signal.reason);
      taker = resolve;
      signal.addEventListener("abort", abort, { once: true });
      try {
        return await promise;
      } finally {
        signal.removeEventListener("abort", abort);
        if (taker === resolve) taker = undefined;
      }
    },
  };
}
