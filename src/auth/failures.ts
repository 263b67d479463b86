import { BrokerError } from "../protocol/problems.ts";

export interface FailureLimits {
  /** Failures of one address within a window, after which further ones are told to wait. A valid key still passes. */
  readonly perAddress: number;
  /** Failures of one address with one key's id, after which that pair is not even looked up. */
  readonly perKey: number;
  readonly windowMs: number;
}

export const FAILURE_LIMITS: FailureLimits = Object.freeze({ perAddress: 30, perKey: 10, windowMs: 60_000 });

/** Counters kept; beyond, the oldest go first. */
const ENTRY_LIMIT = 10_000;

interface Counter {
  count(key: string, nowMs: number): number;
  add(key: string, nowMs: number): void;
}

function createCounter(windowMs: number): Counter {
  const entries = new Map<string, { sinceMs: number; count: number }>();
  const current = (key: string, nowMs: number) => {
    const entry = entries.get(key);
    return entry !== undefined && nowMs - entry.sinceMs < windowMs ? entry : undefined;
  };
  return {
    count: (key, nowMs) => current(key, nowMs)?.count ?? 0,
    add(key, nowMs) {
      const entry = current(key, nowMs);
      if (entry !== undefined) {
        entry.count += 1;
        return;
      }
      entries.delete(key);
      entries.set(key, { sinceMs: nowMs, count: 1 });
      const [oldest] = entries.keys();
      if (entries.size > ENTRY_LIMIT && oldest !== undefined) entries.delete(oldest);
    },
  };
}

/** Slows down guessing without letting one client's stale key lock out everybody behind the same address. */
export interface Failures {
  /** @throws BrokerError rate_limited */
  check(address: string, keyId: string): void;
  /** Counts one and gives what to throw: the given problem, or rate_limited once there were too many. */
  failed(address: string, keyId: string, problem: BrokerError): BrokerError;
}

export function createFailures(limits: FailureLimits, now: () => number): Failures {
  const byAddress = createCounter(limits.windowMs);
  const byKey = createCounter(limits.windowMs);
  const tooMany = (): BrokerError =>
    new BrokerError("rate_limited", "Too many failed attempts. Wait a minute and try again.", {
      details: { retry_after_s: Math.ceil(limits.windowMs / 1000) },
    });
  const pair = (address: string, keyId: string): string => `${address} ${keyId}`;
  return {
    check(address, keyId) {
      if (byKey.count(pair(address, keyId), now()) >= limits.perKey) throw tooMany();
    },
    failed(address, keyId, problem) {
      byAddress.add(address, now());
      byKey.add(pair(address, keyId), now());
      return byAddress.count(address, now()) > limits.perAddress ? tooMany() : problem;
    },
  };
}
