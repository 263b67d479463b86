export interface HeartbeatOptions {
  readonly periodMs: number;
  readonly ping: () => void;
  /** Called once, when nothing was heard for two periods. */
  readonly lost: () => void;
}

/** Pings every period and gives up after two silent ones (contract 5). Whatever arrives counts as heard. */
export function startHeartbeat({ periodMs, ping, lost }: HeartbeatOptions): { heard(): void; stop(): void } {
  let heardAtMs = performance.now();
  let nextPingMs = heardAtMs + periodMs;
  let dueMs = heardAtMs;
  let timer: NodeJS.Timeout | undefined;
  const look = (): void => {
    const nowMs = performance.now();
    // Time in which this process stood still and could hear nobody is not the client's silence.
    heardAtMs = Math.min(nowMs, heardAtMs + Math.max(0, nowMs - dueMs));
    const deadlineMs = heardAtMs + 2 * periodMs;
    if (nowMs >= deadlineMs) return lost();
    if (nowMs >= nextPingMs) {
      ping();
      nextPingMs = nowMs + periodMs;
    }
    dueMs = Math.min(nextPingMs, deadlineMs);
    // A timer may fire a little early, so never wait for less than a millisecond.
    timer = setTimeout(look, Math.max(1, Math.ceil(dueMs - nowMs))).unref();
  };
  look();
  return {
    heard: () => {
      heardAtMs = performance.now();
    },
    stop: () => clearTimeout(timer),
  };
}
