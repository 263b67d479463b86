import { PatchbayError } from "./errors.ts";
import type { SessionEvent } from "./events.ts";
import type { Place, Reader } from "./subscription.ts";

/** Waiting for one thing in a session's events. */
export interface Expectation<T> {
  /** Resolves when events are being watched, so that nothing that is done after it can be missed. */
  readonly ready: Promise<void>;
  readonly met: Promise<T>;
  /** Makes sure that the event of this number is watched: it may be older than the watch, when an earlier program caused it. */
  cover(seq: number): void;
  giveUp(error: unknown): void;
}

const ended = (): PatchbayError =>
  new PatchbayError({ code: "session_ended", message: "The session has ended.", retry: false });
const historyGone = (firstAvailable: number): PatchbayError =>
  new PatchbayError({
    code: "history_gone",
    message: "Retention removed the events that were waited for.",
    retry: false,
    details: { first_available: firstAvailable },
  });

/** Watches from now on; `makeLook` gives a fresh look for each start, which returns what was waited for once an event brings it. */
export function expectEvent<T>(
  join: (reader: Reader) => Place,
  makeLook: () => (event: SessionEvent) => T | undefined,
  signal: AbortSignal | undefined,
): Expectation<T> {
  const ready = Promise.withResolvers<void>();
  const met = Promise.withResolvers<T>();
  // Whoever waits for one of the two is told; the other must not count as unhandled.
  ready.promise.catch(() => {});
  met.promise.catch(() => {});
  let place: Place | undefined;
  let watchedFrom = Number.POSITIVE_INFINITY;

  function finish(): void {
    place?.leave();
    signal?.removeEventListener("abort", aborted);
  }
  function giveUp(error: unknown): void {
    finish();
    ready.reject(error);
    met.reject(error);
  }
  function aborted(): void {
    giveUp(signal?.reason);
  }

  function start(after: Reader["after"]): void {
    const look = makeLook();
    place = join({
      after,
      previews: false,
      standing: false,
      event(event) {
        const found = look(event);
        if (found === undefined) return;
        finish();
        met.resolve(found);
      },
      subscribed(from) {
        // After a reconnection it is called again, from further on.
        watchedFrom = Math.min(watchedFrom, from);
        ready.resolve();
      },
      gap: (firstAvailable) => giveUp(historyGone(firstAvailable)),
      ended: () => giveUp(ended()),
      failed: giveUp,
    });
  }

  if (signal?.aborted === true) giveUp(signal.reason);
  else {
    signal?.addEventListener("abort", aborted, { once: true });
    start("head");
  }
  return {
    ready: ready.promise,
    met: met.promise,
    cover(seq) {
      if (seq > watchedFrom) return;
      const before = place;
      start(seq - 1);
      before?.leave();
    },
    giveUp,
  };
}
