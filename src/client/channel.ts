/** Values for one `for await` loop: written as they come, read as fast as the loop is. */
export interface Channel<T> extends AsyncIterableIterator<T> {
  write(value: T, size: number): void;
  /** What was written is still read; then the loop ends. */
  end(): void;
  /** What was written is still read; then the loop throws. */
  fail(error: unknown): void;
}

interface ChannelOptions {
  /** Sum of unread sizes from which `full` is called; `drained` follows when all of it was read. */
  readonly limit: number;
  readonly full: () => void;
  readonly drained: () => void;
  /** The loop was left, or has come to its end. */
  readonly left: () => void;
}

/** A single reader is expected; `next` may still be called several times ahead. */
export function createChannel<T>(options: ChannelOptions): Channel<T> {
  let unread: { readonly value: T; readonly size: number }[] = [];
  // Where reading is in `unread`: shifting a long array costs its length each time.
  let read = 0;
  const waiting: { resolve: (result: IteratorResult<T>) => void; reject: (error: unknown) => void }[] = [];
  let unreadSize = 0;
  let isFull = false;
  let finish: { readonly error?: unknown } | undefined;

  function settle(how: { readonly error?: unknown }): void {
    if (finish !== undefined) return;
    finish = how;
    options.left();
    for (const { resolve, reject } of waiting.splice(0)) {
      if ("error" in how) reject(how.error);
      else resolve({ done: true, value: undefined });
    }
  }

  function take(): T | undefined {
    const next = unread[read];
    if (next === undefined) return undefined;
    read++;
    if (read > 1024 && read * 2 > unread.length) {
      unread = unread.slice(read);
      read = 0;
    }
    unreadSize -= next.size;
    if (isFull && read === unread.length && finish === undefined) {
      isFull = false;
      options.drained();
    }
    return next.value;
  }

  const channel: Channel<T> = {
    [Symbol.asyncIterator]: () => channel,
    next() {
      if (read < unread.length) {
        const value = take();
        if (value !== undefined) return Promise.resolve({ done: false, value });
      }
      if (finish === undefined) return new Promise((resolve, reject) => waiting.push({ resolve, reject }));
      if (!("error" in finish)) return Promise.resolve({ done: true, value: undefined });
      const { error } = finish;
      // Told once, as a generator would.
      finish = {};
      return Promise.reject(error);
    },
    return() {
      unread = [];
      read = 0;
      settle({});
      return Promise.resolve({ done: true, value: undefined });
    },
    write(value, size) {
      if (finish !== undefined) return;
      const reader = waiting.shift();
      if (reader !== undefined) return reader.resolve({ done: false, value });
      unread.push({ value, size });
      unreadSize += size;
      if (unreadSize < options.limit || isFull) return;
      isFull = true;
      options.full();
    },
    end: () => settle({}),
    fail: (error) => settle({ error }),
  };
  return channel;
}
