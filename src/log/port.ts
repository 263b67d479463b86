import type { EventHead } from "../protocol/events.ts";
import type { Seq } from "../protocol/ids.ts";
import type { Write } from "../store/port.ts";

/** One event, spliced once (design 2): every viewer gets the same bytes. */
export interface LogEvent {
  readonly seq: Seq;
  readonly eventType: string;
  readonly preview: boolean;
  /** Not shown below driver: it carries private facts (contract 5). */
  readonly restricted: boolean;
  /** The whole envelope as one JSON object, UTF-8. */
  readonly envelope: Uint8Array;
  /** Transport encodings made once and shared by all viewers; a transport fills its own slot. */
  readonly encoded: { frame?: Uint8Array; sse?: Uint8Array; dialect?: Uint8Array };
}

/** What a writer hands in: the head, and the payload's bytes (JSON, UTF-8), which go out unchanged. */
export interface NewEvent {
  readonly head: EventHead;
  readonly payload: Uint8Array;
  readonly restricted?: boolean;
}

export type Batch =
  | { readonly kind: "events"; readonly events: readonly LogEvent[] }
  /** What was asked for is partly gone; the next batch starts at `firstAvailable`. */
  | { readonly kind: "gap"; readonly firstAvailable: Seq };

export interface PageQuery {
  readonly after: Seq;
  readonly limit: number;
  readonly eventType?: string;
  /** Include events that are not shown below driver. */
  readonly restricted: boolean;
}

/** Newest first: below `before`, or from the newest that was shown. */
export interface BackQuery {
  readonly before?: Seq;
  readonly limit: number;
  /** Include events that are not shown below driver. */
  readonly restricted: boolean;
}

export interface Page {
  readonly events: readonly LogEvent[];
  readonly head: Seq;
  /** Ask again after this number; equal to `head` when the page reached it. */
  readonly next: Seq;
}

/** What a turn's edges mean to the log: numbers may be shown ahead of durable ones in between, and previews go at the end. */
export type TurnEdge = "begin" | "end";

/** One session's ordered events: the system of record (design 3). One writer, any number of readers. */
export interface EventLog {
  /**
   * Events numbered by the owner, each above the last. Previews (head.preview) are shown at once when nothing before them is uncommitted;
   * the others once they and `writes` are committed together, and with them `mark`: how far its owner had come in what it reads (design 3).
   * Resolves when all of it is durable; calls become durable in call order.
   * @throws BrokerError internal when the store fails: nothing of this or a later call is shown
   */
  append(events: readonly NewEvent[], writes?: readonly Write[], edge?: TurnEdge, mark?: number): Promise<void>;
  /**
   * Events after `after`, then new ones as they come, in order, until `signal` aborts (the iteration then ends quietly) or the log is
   * closed. @throws BrokerError cursor_ahead
   */
  follow(after: Seq, signal: AbortSignal): AsyncIterable<Batch>;
  /** @throws BrokerError cursor_ahead, history_gone */
  page(query: PageQuery): Promise<Page>;
  /** Durable events that were shown, descending; `complete` when there are no more below them. */
  back(query: BackQuery): Promise<{ readonly events: readonly LogEvent[]; readonly complete: boolean }>;
  /** The highest number shown to anyone so far. */
  head(): Seq;
  /** The durable event with this number, if it is there. */
  read(seq: Seq): Promise<LogEvent | undefined>;
}

/** A log as its one writer opened it. */
export interface OpenedLog {
  readonly log: EventLog;
  /** The number to go on from: above everything that was ever shown. */
  readonly last: Seq;
  /** True when numbers may have been shown that are not in the log (a crash in mid-turn): the first append is `session.recovered`. */
  readonly jumped: boolean;
}

/** What an owner knows of numbers that were given out and are not durable: it will give the same ones to the same events again. */
export interface Continuation {
  /** The last number that is not to be given again. */
  readonly last: Seq;
  readonly turnRuns: boolean;
}

/** All logs of a store. */
export interface Logs {
  /**
   * With a continuation the numbers go on where it says; without one they jump past all that may have been shown.
   * @throws BrokerError not_found when the session's row is missing
   */
  open(sessionId: string, continuation?: Continuation): Promise<OpenedLog>;
  /** Readers end; memory is let go. The events stay. */
  close(sessionId: string): Promise<void>;
  /** Removes the events for good; the session's row is its owner's to remove. */
  purge(sessionId: string): Promise<void>;
  /** Retention: removes the durable events up to and including `upTo`. Readers that are behind are told with a gap. */
  trim(sessionId: string, upTo: Seq): Promise<void>;
}
