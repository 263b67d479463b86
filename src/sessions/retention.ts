import { setImmediate as yieldToOthers } from "node:timers/promises";
import type { Logs } from "../log/port.ts";
import { seq } from "../protocol/ids.ts";
import type { Store } from "../store/port.ts";
import {
  type Candidate,
  lastBefore,
  measure,
  oldestEvents,
  oldestTime,
  readCandidates,
  type Size,
} from "./retention-reads.ts";
import { readSession, type SessionRow } from "./rows.ts";

/** What is kept of the sessions' logs. 0 = no bound. */
export interface RetentionSettings {
  /** Events older than this go, in milliseconds. */
  readonly maxAgeMs: number;
  /** A tenant's events take no more than this together, in bytes of their envelopes; the oldest of all its sessions go first. */
  readonly maxBytesPerTenant: number;
}

export interface RetentionParts {
  readonly store: Store;
  readonly logs: Pick<Logs, "trim">;
  readonly settings: RetentionSettings;
  readonly now: () => number;
}

/** Removes what is too old or too much, but nothing that an open turn, queued message, open request or unanswered command still needs. */
export interface Retention {
  /** One pass over all sessions, in small steps with others' work in between. Resolves with the number of trims. Calls do not overlap. */
  run(): Promise<number>;
}

/** Events that one trim for size takes at most: those of another session may be older than what follows. */
const EVENTS_PER_TRIM = 200;

export function createRetention({ store, logs, settings, now }: RetentionParts): Retention {
  const { maxAgeMs, maxBytesPerTenant } = settings;
  // What was counted stays counted: a pass reads only what is new.
  const sizes = new Map<string, Size>();
  let running: Promise<number> | undefined;

  /** Trims up to there, or as far as nothing is still needed. Returns how far, 0 when nothing is removed. */
  async function trim(id: string, upTo: number): Promise<number> {
    const row = await readSession(store, id);
    const last = row === undefined ? 0 : Math.min(upTo, (await firstNeeded(store, row)) - 1);
    const [first] = await oldestEvents(store, id, 1);
    if (first === undefined || first.seq > last) return 0;
    await logs.trim(id, seq(last));
    return last;
  }

  async function trimByAge(candidates: readonly Candidate[]): Promise<number> {
    const cutoff = now() - maxAgeMs;
    let trims = 0;
    for (const { id, createdAtMs, head, removed } of candidates) {
      if (createdAtMs >= cutoff) continue;
      await yieldToOthers();
      const last = await lastBefore(store, id, { after: removed, upTo: head }, cutoff);
      if (last === undefined || (await trim(id, last)) === 0) continue;
      sizes.delete(id);
      trims += 1;
    }
    return trims;
  }

  async function trimBySize(candidates: readonly Candidate[]): Promise<number> {
    const tenants = new Map<string, { readonly bytes: number; readonly ids: readonly string[] }>();
    const known = new Set(candidates.map(({ id }) => id));
    for (const id of sizes.keys()) if (!known.has(id)) sizes.delete(id);
    for (const { id, tenant, head } of candidates) {
      const size = await measure(store, id, head, sizes.get(id));
      sizes.set(id, size);
      const sum = tenants.get(tenant) ?? { bytes: 0, ids: [] };
      tenants.set(tenant, { bytes: sum.bytes + size.bytes, ids: [...sum.ids, id] });
    }
    let trims = 0;
    for (const { bytes, ids } of tenants.values()) trims += await removeBytes(bytes - maxBytesPerTenant, ids);
    return trims;
  }

  async function removeBytes(excessBytes: number, ids: readonly string[]): Promise<number> {
    const oldest = new Map<string, number>();
    if (excessBytes > 0) for (const id of ids) await place(oldest, id);
    let excess = excessBytes;
    let trims = 0;
    while (excess > 0 && oldest.size > 0) {
      const id = [...oldest].reduce((one, other) => (other[1] < one[1] ? other : one))[0];
      const rows = await oldestEvents(store, id, EVENTS_PER_TRIM);
      const wanted = enough(rows, excess);
      const reached = await trim(id, wanted);
      const freed = rows.reduce((sum, { seq: number, bytes }) => sum + (number <= reached ? bytes : 0), 0);
      excess -= freed;
      trims += reached > 0 ? 1 : 0;
      const size = sizes.get(id);
      if (size !== undefined) sizes.set(id, { ...size, bytes: size.bytes - freed });
      oldest.delete(id);
      // What follows is still needed, if it did not come as far as it should.
      if (reached === wanted) await place(oldest, id);
    }
    return trims;
  }

  async function place(oldest: Map<string, number>, id: string): Promise<void> {
    await yieldToOthers();
    const atMs = await oldestTime(store, id);
    if (atMs !== undefined) oldest.set(id, atMs);
  }

  async function pass(): Promise<number> {
    let trims = 0;
    if (maxAgeMs > 0) trims += await trimByAge(await readCandidates(store));
    if (maxBytesPerTenant > 0) trims += await trimBySize(await readCandidates(store));
    return trims;
  }

  return {
    run() {
      running ??= pass().finally(() => {
        running = undefined;
      });
      return running;
    },
  };
}

/** Passes at intervals until it is stopped. Stopping waits for the pass that runs. */
export function scheduleRetention(
  retention: Retention,
  everyMs: number,
  report: (error: unknown) => void,
): { stop(): Promise<void> } {
  let running: Promise<unknown> = Promise.resolve();
  const timer = setInterval(() => {
    running = retention.run().catch(report);
  }, everyMs);
  timer.unref();
  return {
    async stop() {
      clearInterval(timer);
      await running;
    },
  };
}

/** The number of the last of the oldest events that together take so many bytes, or of all. */
function enough(rows: readonly { readonly seq: number; readonly bytes: number }[], wantedBytes: number): number {
  let bytes = 0;
  for (const row of rows) {
    bytes += row.bytes;
    if (bytes >= wantedBytes) return row.seq;
  }
  return rows.at(-1)?.seq ?? 0;
}

/** The first event that something unfinished refers to; infinite when nothing does. */
async function firstNeeded(store: Store, { id, snapshot }: SessionRow): Promise<number> {
  const { queue, turns, requests, pending, held, outbox } = snapshot;
  const written = outbox.flatMap(({ line }) => (typeof line === "number" ? [line] : []));
  // A turn that the agent began by itself has no message that says where it began: all that is there may belong to it.
  const begun = turns.map((turn) => turn.seq ?? 1);
  const commands = pending.map(({ commandId }) => commandId);
  const marks = commands.map(() => "?").join(", ");
  const sql = `SELECT MIN(seq) AS seq FROM commands WHERE session = ? AND id IN (${marks})`;
  const [row] = commands.length === 0 ? [] : await store.read(sql, [id, ...commands]);
  const asked = typeof row?.["seq"] === "number" ? [row["seq"]] : [];
  return Math.min(
    Number.POSITIVE_INFINITY,
    ...[...queue, ...requests].map((item) => item.seq),
    ...begun,
    ...held,
    ...written,
    ...asked,
  );
}
