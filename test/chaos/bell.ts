/** Wakes whoever waits for something that events bring about. */
export interface Bell {
  ring(): void;
  /** Resolves with what `look` finds, now or after a ring. Rejects with `what` when it has not come in time. */
  until<T>(what: string, look: () => T | undefined, patienceMs?: number): Promise<T>;
  /** How often it rang. */
  count(): number;
}

class Overdue extends Error {}

export function createBell(defaultPatienceMs = 60_000): Bell {
  const watchers = new Set<() => void>();
  let rings = 0;
  return {
    ring() {
      rings += 1;
      for (const watcher of [...watchers]) watcher();
    },
    until(what, look, patienceMs = defaultPatienceMs) {
      const now = look();
      if (now !== undefined) return Promise.resolve(now);
      return new Promise((resolve, reject) => {
        const timer = setTimeout(() => {
          watchers.delete(watcher);
          reject(new Overdue(`${what} did not come within ${patienceMs / 1000} s`));
        }, patienceMs);
        const watcher = (): void => {
          const found = look();
          if (found === undefined) return;
          clearTimeout(timer);
          watchers.delete(watcher);
          resolve(found);
        };
        watchers.add(watcher);
      });
    },
    count: () => rings,
  };
}
