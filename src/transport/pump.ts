import type { EventLog, LogEvent } from "../log/port.ts";
import type { Seq } from "../protocol/ids.ts";

/** Where a subscription's events go. Each call resolves when the next may follow; after an abort it resolves with nothing written. */
export interface Sink {
  events(events: readonly LogEvent[]): Promise<unknown>;
  gap(firstAvailable: Seq): Promise<unknown>;
}

export interface PumpOptions {
  readonly after: Seq;
  /** Show `stream_event` lines. */
  readonly previews: boolean;
  /** Show events that carry private facts: for driver and above (contract 5). */
  readonly restricted: boolean;
  /** Whether the session has ended for good and all of its log has been shown. Decided is not shown yet: the last events may wait for the disk. */
  readonly ended: () => boolean;
}

/** How a pump came to its end: `ended` = everything of an ended session was delivered; `closed` = the log was closed under it. */
export type PumpEnd = "aborted" | "ended" | "closed";

/** Moves a cursor over a log into a sink, as fast as the sink takes it (design 2: the log is the only queue). @throws BrokerError cursor_ahead */
export async function pump(log: EventLog, sink: Sink, options: PumpOptions, signal: AbortSignal): Promise<PumpEnd> {
  let last: number = options.after;
  const finished = (): boolean => options.ended() && last >= log.head();
  const shown = (event: LogEvent): boolean =>
    (options.previews || !event.preview) && (options.restricted || !event.restricted);
  if (finished() && last === log.head()) return "ended";
  for await (const batch of log.follow(options.after, signal)) {
    if (batch.kind === "gap") {
      await sink.gap(batch.firstAvailable);
      continue;
    }
    // The batch itself where nothing is left out: its encoding is shared.
    await sink.events(batch.events.every(shown) ? batch.events : batch.events.filter(shown));
    last = batch.events.at(-1)?.seq ?? last;
    if (signal.aborted) break;
    if (finished()) return "ended";
  }
  return signal.aborted ? "aborted" : "closed";
}

/** Events a sink hands to its socket in one go: whole ones up to so many bytes, so that subscriptions of one socket alternate. */
const SLICE_BYTES = 64 * 1024;

type Slice = readonly Uint8Array[];

/** Small events become one buffer: a socket is cheaper to feed with one chunk than with hundreds. */
const joined = (parts: Slice, bytes: number): Slice =>
  parts.length === 1 || bytes > SLICE_BYTES ? parts : [Buffer.concat(parts, bytes)];

function cut(events: readonly LogEvent[], encode: (event: LogEvent) => Slice): Slice[] {
  const slices: Slice[] = [];
  let slice: Uint8Array[] = [];
  let bytes = 0;
  const finish = (): void => {
    if (slice.length > 0) slices.push(joined(slice, bytes));
    slice = [];
    bytes = 0;
  };
  for (const event of events) {
    const parts = encode(event);
    const size = parts.reduce((sum, part) => sum + part.length, 0);
    if (bytes + size > SLICE_BYTES) finish();
    slice.push(...parts);
    bytes += size;
  }
  finish();
  return slices;
}

/**
 * Cuts batches into slices of whole encoded events; one that is larger than a slice stands alone. All readers at one place of a log get
 * the same batch, so what is made of it is kept for as long as the batch is.
 */
export function createSlicer(encode: (event: LogEvent) => Slice): (events: readonly LogEvent[]) => readonly Slice[] {
  const known = new WeakMap<readonly LogEvent[], readonly Slice[]>();
  return (events) => {
    const kept = known.get(events);
    if (kept !== undefined) return kept;
    const slices = cut(events, encode);
    known.set(events, slices);
    return slices;
  };
}
