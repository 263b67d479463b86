import { isSlowControl } from "./controls.ts";
import { isIdle, type State } from "./state.ts";
import type { Signal } from "./step.ts";

/** How long a session waits for what, in milliseconds. */
export interface Patience {
  /** The CLI, to answer a control_request; and one that calls a model, a server or a person. */
  readonly controlTimeoutMs: number;
  readonly slowControlTimeoutMs: number;
  /** A client that serves hooks or MCP servers may be away for so long. */
  readonly ownerGraceMs: number;
  /** A running turn may be silent for so long before it is said to be stalled; and, once interrupted, may take so long to end. */
  readonly stallMs: number;
  readonly stallRestartMs: number;
  /** A process that is to run a turn again has so long to begin. */
  readonly rerunMs: number;
}

export interface TimerParts {
  readonly patience: Patience;
  /** An idle process is kept for so long; 0 = for ever. */
  readonly idleTimeoutMs: () => number;
  readonly now: () => number;
  readonly state: () => State;
  /** Does nothing once the session is closed or broken. */
  readonly apply: (signal: Signal) => void;
}

/** The timers of one session. None of them decides anything: each is a signal, and the step looks at the state. */
export interface Timers {
  /** After a step: starts timers for what is new. `before` undefined: everything is. */
  watch(before: State | undefined): void;
  /** The agent has said something. */
  heard(): void;
  /** Since when it has been idle; undefined when it is not. */
  idleSinceMs(): number | undefined;
  /** The idle timeout may be another one now. */
  touch(): void;
  close(): void;
}

export function createTimers({ patience, idleTimeoutMs, now, state, apply }: TimerParts): Timers {
  let idle: NodeJS.Timeout | undefined;
  let silence: NodeJS.Timeout | undefined;
  let heardAtMs = now();
  let idleSinceMs: number | undefined;
  let closed = false;

  const later = (ms: number, signal: Signal): NodeJS.Timeout =>
    // A timer may fire a little early; the step holds it against the clock.
    setTimeout(() => !closed && apply(signal), Math.max(0, Math.min(ms, 2 ** 31 - 10)) + 5).unref();

  const watchRequests = (before: State | undefined, after: State): void => {
    for (const { request_id, expires_at_ms } of after.requests) {
      const isNew = before?.requests.some((request) => request.request_id === request_id) !== true;
      if (isNew && expires_at_ms !== undefined)
        later(expires_at_ms - now(), { type: "request_due", requestId: request_id });
    }
    for (const { requestId, subtype } of after.pending) {
      const isNew = before?.pending.some((pending) => pending.requestId === requestId) !== true;
      const ms = isSlowControl(subtype) ? patience.slowControlTimeoutMs : patience.controlTimeoutMs;
      if (isNew) later(ms, { type: "control_due", requestId });
    }
  };

  const watchOwners = (before: State | undefined, after: State): void => {
    for (const owner of after.owners) {
      if (owner.connectionId !== undefined) continue;
      const wasHere = before?.owners.find((item) => item.id === owner.id)?.connectionId !== undefined;
      const isAsked = after.requests.some(
        (request) => request.owner === owner.id && before?.requests.includes(request) !== true,
      );
      if (before === undefined || wasHere || isAsked)
        later(patience.ownerGraceMs, { type: "owner_due", owner: owner.id, awaySinceMs: owner.awaySinceMs });
    }
  };

  const watchLife = (before: State | undefined, after: State): void => {
    const { phase } = after;
    if (phase !== before?.phase) {
      if (phase.name === "hibernated" && phase.wakeAtMs !== undefined)
        later(phase.wakeAtMs - now(), { type: "wake_due" });
      if (phase.name === "live" && after.rerun) later(patience.rerunMs, { type: "rerun_due" });
    }
    if (after.stalled?.interrupted === true && before?.stalled?.interrupted !== true)
      later(patience.stallRestartMs, { type: "stall_due", turnId: after.stalled.turnId });
    if (after.current !== undefined && silence === undefined) listen(patience.stallMs);
  };

  /** One timer a session, set anew when it fires and something was heard meanwhile. */
  const listen = (ms: number): void => {
    silence = setTimeout(() => {
      silence = undefined;
      if (closed || state().current === undefined) return;
      const silentMs = now() - Math.max(heardAtMs, state().retryUntilMs);
      if (silentMs >= patience.stallMs) apply({ type: "silent", forMs: silentMs });
      if (silence === undefined && !closed && state().current !== undefined)
        listen(silentMs >= patience.stallMs ? patience.stallMs : patience.stallMs - silentMs);
    }, Math.max(ms, 0) + 5).unref();
  };

  const watchIdle = (after: State): void => {
    const ms = idleTimeoutMs();
    idleSinceMs = isIdle(after) ? (idleSinceMs ?? now()) : undefined;
    if (idleSinceMs === undefined || ms === 0) {
      clearTimeout(idle);
      idle = undefined;
    } else idle ??= later(ms, { type: "hibernate" });
  };

  return {
    watch(before) {
      const after = state();
      heardAtMs = now();
      watchRequests(before, after);
      watchOwners(before, after);
      watchLife(before, after);
      watchIdle(after);
    },
    heard() {
      heardAtMs = now();
    },
    idleSinceMs: () => idleSinceMs,
    touch() {
      clearTimeout(idle);
      idle = undefined;
      watchIdle(state());
    },
    close() {
      closed = true;
      clearTimeout(idle);
      clearTimeout(silence);
    },
  };
}
