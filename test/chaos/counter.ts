/** Something that goes up, and who waits for it. */
export interface Counter {
  readonly value: number;
  add(): void;
  /** True when it has reached that, false when it did not within so many milliseconds. */
  reach(value: number, patienceMs: number): Promise<boolean>;
}

export function createCounter(): Counter {
  const waiting = new Set<{ readonly value: number; readonly done: (reached: boolean) => void }>();
  let count = 0;
  return {
    get value() {
      return count;
    },
    add() {
      count += 1;
      for (const waiter of waiting) if (count >= waiter.value) waiter.done(true);
    },
    reach(value, patienceMs) {
      if (count >= value) return Promise.resolve(true);
      const { promise, resolve } = Promise.withResolvers<boolean>();
      const waiter = { value, done: resolve };
      waiting.add(waiter);
      const timer = setTimeout(() => resolve(false), patienceMs);
      return promise.finally(() => {
        clearTimeout(timer);
        waiting.delete(waiter);
      });
    },
  };
}
