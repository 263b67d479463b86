import { expect, test, vi } from "vitest";
import { startHeartbeat } from "../../src/transport/heartbeat.ts";

/** Moves the clock without letting timers run: a process that stands still. */
function stallFor(ms: number): void {
  const jumped = performance.now() + ms;
  vi.spyOn(performance, "now").mockImplementationOnce(() => jumped);
}

test("two silent periods end it, and not a moment before", () => {
  vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout", "performance", "Date"] });
  try {
    const [ping, lost] = [vi.fn(), vi.fn()];
    const heartbeat = startHeartbeat({ periodMs: 1_000, ping, lost });
    vi.advanceTimersByTime(1_500);
    heartbeat.heard();
    vi.advanceTimersByTime(1_990);
    expect({ pings: ping.mock.calls.length, lost: lost.mock.calls.length }).toEqual({ pings: 3, lost: 0 });
    vi.advanceTimersByTime(20);
    expect(lost).toHaveBeenCalledTimes(1);
    vi.advanceTimersByTime(10_000);
    expect(lost).toHaveBeenCalledTimes(1);
  } finally {
    vi.useRealTimers();
  }
});

test("a process that stood still does not take its own silence for the client's", () => {
  vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout", "performance", "Date"] });
  try {
    const [ping, lost] = [vi.fn(), vi.fn()];
    const heartbeat = startHeartbeat({ periodMs: 1_000, ping, lost });
    vi.advanceTimersByTime(999);
    stallFor(5_000);
    vi.advanceTimersByTime(1);
    expect({ pings: ping.mock.calls.length, lost: lost.mock.calls.length }).toEqual({ pings: 1, lost: 0 });
    heartbeat.stop();
  } finally {
    vi.restoreAllMocks();
    vi.useRealTimers();
  }
});
