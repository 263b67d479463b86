import type { HowEnded, StopPatience } from "./port.ts";

/** What each rung does. */
export interface Rungs {
  /** Closes stdin. */
  eof(): void;
  /** SIGTERM to the leader, which knows how to end its own children. */
  term(): void;
  /** SIGKILL to the whole group. */
  kill(): void;
}

export interface StopLadder {
  /** Begins to stop. Again: each rung's patience becomes the shorter of those asked for. */
  stop(patience: StopPatience): void;
  /** Goes to the last rung now. */
  kill(): void;
  /** The process has ended: no further rung. Returns the last one that was needed. */
  ended(): HowEnded;
}

/** EOF, SIGTERM, SIGKILL, each after the patience of the one before. */
export function createStopLadder(rungs: Rungs): StopLadder {
  let reached: HowEnded = "exited";
  let reachedAtMs = 0;
  let patience: StopPatience = { eofMs: Number.POSITIVE_INFINITY, termMs: Number.POSITIVE_INFINITY };
  let timer: NodeJS.Timeout | undefined;
  let over = false;

  function step(rung: Exclude<HowEnded, "exited">): void {
    reached = rung;
    reachedAtMs = performance.now();
    if (rung === "eof") rungs.eof();
    else if (rung === "SIGTERM") rungs.term();
    else rungs.kill();
  }

  function arm(): void {
    clearTimeout(timer);
    if (reached !== "eof" && reached !== "SIGTERM") return;
    const next = reached === "eof" ? "SIGTERM" : "SIGKILL";
    const leftMs = reachedAtMs + (reached === "eof" ? patience.eofMs : patience.termMs) - performance.now();
    timer = setTimeout(
      () => {
        step(next);
        arm();
      },
      Math.max(leftMs, 0),
    );
  }

  return {
    stop({ eofMs, termMs }) {
      if (over) return;
      patience = { eofMs: Math.min(patience.eofMs, eofMs), termMs: Math.min(patience.termMs, termMs) };
      if (reached === "exited") step("eof");
      arm();
    },
    kill() {
      if (over || reached === "SIGKILL") return;
      clearTimeout(timer);
      step("SIGKILL");
    },
    ended() {
      over = true;
      clearTimeout(timer);
      return reached;
    },
  };
}
