import { createFrameSplitter, HEAD_BYTES } from "./frame-splitter.ts";

/** What one viewer has seen of a turn. */
export interface Seen {
  /** Agent lines that are previews. */
  previews: number;
  /** Agent lines that are not: none of them may be missing. */
  durable: number;
  bytes: number;
  /** The turn's `result` has come. */
  isDone: boolean;
  /** The first breach of what every server promises; the run is void. */
  fault: string | undefined;
}

/** Reads what arrives on one socket, cheaply: in place, without making objects. */
export interface WireReader {
  read(chunk: Buffer): void;
  readonly seen: Seen;
  /** Forgets what was counted, for the next turn. */
  reset(): void;
}

const newSeen = (): Seen => ({ previews: 0, durable: 0, bytes: 0, isDone: false, fault: undefined });

/** What an event is, by the first two letters of its type: st(ream_event), re(sult), as(sistant), us(er), sy(stem). */
const pair = (text: string): number => text.charCodeAt(0) * 256 + text.charCodeAt(1);
const PREVIEW = pair("st");
const RESULT = pair("re");
const DURABLE: readonly number[] = ["as", "us", "sy"].map(pair);

function count(seen: Seen, kind: number): void {
  if (kind === PREVIEW) seen.previews += 1;
  else if (DURABLE.includes(kind)) seen.durable += 1;
  else if (kind === RESULT) seen.isDone = true;
}

const LINE_FEED = 10;
/** Where the type's letters are in a line of the corpus. */
const TYPE_AT = '{"type":"'.length;

/** The floor's wire: bare lines. */
export function createLineReader(): WireReader {
  const seen = newSeen();
  let held = Buffer.alloc(0);
  const take = (bytes: Buffer, at: number): void =>
    count(seen, (bytes[at + TYPE_AT] ?? 0) * 256 + (bytes[at + TYPE_AT + 1] ?? 0));
  return {
    seen,
    read(chunk) {
      seen.bytes += chunk.length;
      let at = 0;
      for (let end = chunk.indexOf(LINE_FEED); end !== -1; end = chunk.indexOf(LINE_FEED, at)) {
        if (held.length === 0) take(chunk, at);
        else take(Buffer.concat([held, chunk.subarray(0, end)]), 0);
        held = Buffer.alloc(0);
        at = end + 1;
      }
      // Only so much of a line's start is kept as tells its type: a copy, since the chunk's memory is used again.
      const missing = TYPE_AT + 2 - held.length;
      if (at < chunk.length && missing > 0) held = Buffer.concat([held, chunk.subarray(at, at + missing)]);
    },
    reset: () => Object.assign(seen, newSeen()),
  };
}

const TEXT = 0x81;
const PING = 0x89;
const CLOSE = 0x88;
const [LETTER_E, LETTER_V, ZERO] = [..."ev0"].map((letter) => letter.charCodeAt(0));
const SEQ = Buffer.from('"seq":');
const AFTER_SEQ = ',"event_type":"'.length;

/** The wire of WebSocket servers: a text frame for each event, with numbers that ascend. `ping` is told of each ping. */
export function createEventReader(ping: () => void): WireReader {
  const seen = newSeen();
  let last = 0;
  /** Where the digits of seq begin: the same in every event of a session. */
  let seqAt = 0;
  const fail = (what: string): void => {
    seen.fault ??= what;
  };

  function event(bytes: Buffer, at: number): void {
    if (seqAt === 0) seqAt = bytes.indexOf(SEQ, at) - at + SEQ.length;
    let place = at + seqAt;
    let seq = 0;
    for (let digit = digitAt(bytes, place); digit >= 0 && digit <= 9; digit = digitAt(bytes, place)) {
      seq = seq * 10 + digit;
      place += 1;
    }
    if (seq <= last) fail(`event ${seq} came after ${last}`);
    last = seq;
    count(seen, (bytes[place + AFTER_SEQ] ?? 0) * 256 + (bytes[place + AFTER_SEQ + 1] ?? 0));
  }

  const split = createFrameSplitter((firstByte, bytes, at, payloadBytes) => {
    if (firstByte === PING) return ping();
    if (firstByte === CLOSE) return fail("the server closed the socket");
    if (firstByte !== TEXT) return fail(`a frame began with ${firstByte}`);
    if (bytes[at + TYPE_AT] === LETTER_E && bytes[at + TYPE_AT + 1] === LETTER_V) return event(bytes, at);
    const text = bytes.toString("utf8", at, at + Math.min(payloadBytes, HEAD_BYTES));
    if (/^\{"type":"(error|gap|ended)"/.test(text)) fail(text);
  });
  return {
    seen,
    read(chunk) {
      seen.bytes += chunk.length;
      split(chunk);
    },
    reset: () => Object.assign(seen, newSeen()),
  };
}

const digitAt = (bytes: Buffer, at: number): number => (bytes[at] ?? 0) - (ZERO ?? 0);
