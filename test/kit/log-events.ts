import type { EventLog, LogEvent, NewEvent } from "../../src/log/port.ts";
import { type Seq, seq, sessionId } from "../../src/protocol/ids.ts";
import type { Store } from "../../src/store/port.ts";

/** Makes the row that a session's log stands on, as sessions/ does before it opens the log. */
export async function insertSession(store: Store, id: string): Promise<void> {
  const sql =
    "INSERT INTO sessions (id, tenant, state, created_at_ms, updated_at_ms) VALUES (?, 'default', 'idle', 0, 0)";
  await store.write([{ sql, params: [id] }]);
}

export interface EventShape {
  readonly preview?: boolean;
  readonly restricted?: boolean;
  readonly eventType?: string;
  readonly payload?: string;
  readonly bytes?: number;
}

/** An event as an owner hands it in. `bytes` makes its payload about so long. */
export function newEvent(id: string, number: number, shape: EventShape = {}): NewEvent {
  const payload = shape.payload ?? JSON.stringify({ n: number, fill: "x".repeat(shape.bytes ?? 0) });
  return {
    head: {
      session_id: sessionId(id),
      seq: seq(number),
      event_type: shape.eventType ?? (shape.preview ? "stream_event" : "assistant"),
      origin: "AGENT_EVENT",
      source: "agent",
      timestamp_ms: 1_700_000_000_000 + number,
      ...(shape.preview && { preview: true as const }),
    },
    payload: Buffer.from(payload),
    ...(shape.restricted && { restricted: true }),
  };
}

/** Reads until `enough` says so, then stops. Gaps are given to `onGap`. */
export async function readUntil(
  log: EventLog,
  after: number,
  enough: (seen: readonly LogEvent[]) => boolean,
  onGap: (firstAvailable: Seq) => void = () => {},
): Promise<LogEvent[]> {
  const stop = new AbortController();
  const seen: LogEvent[] = [];
  for await (const batch of log.follow(seq(after), stop.signal)) {
    if (batch.kind === "gap") onGap(batch.firstAvailable);
    else seen.push(...batch.events);
    if (enough(seen)) stop.abort();
  }
  return seen;
}

/** Everything after a number up to and including another. */
export function readTo(log: EventLog, after: number, last: number): Promise<LogEvent[]> {
  return readUntil(log, after, (seen) => (seen.at(-1)?.seq ?? 0) >= last);
}

export function numbers(events: readonly LogEvent[]): number[] {
  return events.map((event) => event.seq);
}

/** Resolves once what the event loop has at hand has run. */
export function tick(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}
