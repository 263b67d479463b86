import { BrokerError } from "../protocol/problems.ts";
import type { Write } from "./port.ts";

/** What one caller handed to write(): applied whole or not at all. */
export type Call = readonly Write[];

/** Commits the calls as one transaction. Answers which of them (by index) were left out and why; rejects when nothing was committed. */
export type Commit = (calls: readonly Call[]) => Promise<ReadonlyMap<number, string>>;

/** A transaction takes at most this much (or one call), so that one flood does not hold up everybody's answer. */
const MAX_GROUP_BYTES = 4 * 1024 * 1024;
const MAX_GROUP_STATEMENTS = 8_192;

interface Waiting {
  readonly call: Call;
  readonly bytes: number;
  resolve(): void;
  reject(error: BrokerError): void;
}

/** Turns calls into transactions: those that arrive while a commit runs form the next one. */
export interface GroupCommit {
  write(call: Call): Promise<void>;
  /** Transactions made so far. */
  commits(): number;
  /** Refuses new calls; resolves when the last one is settled. */
  close(): Promise<void>;
}

export function createGroupCommit(commit: Commit): GroupCommit {
  let waiting: Waiting[] = [];
  let running = false;
  let commits = 0;
  let closing: PromiseWithResolvers<void> | undefined;

  function takeGroup(): Waiting[] {
    let bytes = 0;
    let statements = 0;
    let count = 0;
    for (const { call, bytes: callBytes } of waiting) {
      if (count > 0 && (bytes + callBytes > MAX_GROUP_BYTES || statements + call.length > MAX_GROUP_STATEMENTS)) break;
      bytes += callBytes;
      statements += call.length;
      count += 1;
    }
    const group = waiting.slice(0, count);
    waiting = waiting.slice(count);
    return group;
  }

  async function run(): Promise<void> {
    const group = takeGroup();
    try {
      const failures = await commit(group.map(({ call }) => call));
      commits += 1;
      for (const [index, one] of group.entries()) {
        const failure = failures.get(index);
        if (failure === undefined) one.resolve();
        else one.reject(storeFailed(new Error(failure)));
      }
    } catch (cause) {
      for (const one of group) one.reject(storeFailed(cause));
    }
    schedule();
  }

  function schedule(): void {
    running = waiting.length > 0;
    // Not at once: what the answers above set off in this tick, and the calls of other sessions, still join.
    if (running) setImmediate(() => void run());
    else closing?.resolve();
  }

  return {
    write(call) {
      if (closing !== undefined) return Promise.reject(storeFailed(new Error("write after close")));
      return new Promise((resolve, reject) => {
        waiting.push({ call, bytes: bytesOf(call), resolve, reject });
        if (!running) schedule();
      });
    },
    commits: () => commits,
    close() {
      closing ??= Promise.withResolvers();
      if (!running) closing.resolve();
      return closing.promise;
    },
  };
}

function bytesOf(call: Call): number {
  let bytes = 0;
  for (const { params } of call) {
    for (const value of params) if (typeof value === "object" && value !== null) bytes += value.byteLength;
  }
  return bytes;
}

/** The cause is for the server's log; clients see only that the store failed. */
export function storeFailed(cause: unknown): BrokerError {
  return new BrokerError(
    "internal",
    "The database refused; the server's log says why. Check disk space and try again.",
    { cause },
  );
}
