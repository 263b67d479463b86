import type { ServerResponse } from "node:http";
import type { LogEvent } from "../log/port.ts";
import type { Seq } from "../protocol/ids.ts";
import { BrokerError, problemBody } from "../protocol/problems.ts";
import { cutResponse } from "./cut-response.ts";
import { createOutlet } from "./outlet.ts";
import { createSlicer, type Sink } from "./pump.ts";

export interface StreamOptions {
  /** A comment is sent this often, so that no proxy takes the stream for dead. */
  readonly commentMs: number;
  /** What a client is told to wait before it reconnects. */
  readonly retryMs: number;
  readonly slowReaderMs: number;
  readonly inFlightBytes: number;
  /** How long the last bytes may take before the socket is cut. */
  readonly closeMs: number;
}

export const STREAM_DEFAULTS: StreamOptions = Object.freeze({
  commentMs: 15_000,
  retryMs: 1_000,
  slowReaderMs: 30_000,
  inFlightBytes: 256 * 1024,
  closeMs: 5_000,
});

/** One client's event stream (text/event-stream), as the server writes it. */
export interface EventStream {
  readonly sink: Sink;
  /** Ends it, saying `ended`, or `problem` with its body, as an event of that name; without either, quietly. The first reason wins. */
  end(why?: "ended" | BrokerError): void;
  /** Aborts when the stream has ended or its client has gone. */
  readonly closing: AbortSignal;
  readonly closed: Promise<void>;
}

const LINE_FEED = 10;
const CARRIAGE_RETURN = 13;
const SPACE = 32;
const END = Buffer.from("\n\n");
/** Like frames: a large envelope is not copied for the sake of a few bytes around it. */
const CACHED_LIMIT_BYTES = 8 * 1024;

/** A raw CR or LF can only be whitespace between the tokens of JSON, but would end the field (HTML standard 9.2.6). */
function oneLine(envelope: Uint8Array): Uint8Array {
  if (!envelope.includes(CARRIAGE_RETURN) && !envelope.includes(LINE_FEED)) return envelope;
  return envelope.map((byte) => (byte === CARRIAGE_RETURN || byte === LINE_FEED ? SPACE : byte));
}

/** The event as `id:` and `data:` lines, in one or more parts. */
export function sseEvent(event: LogEvent): readonly Uint8Array[] {
  if (event.encoded.sse !== undefined) return [event.encoded.sse];
  const parts = [Buffer.from(`id: ${event.seq}\ndata: `), oneLine(event.envelope), END];
  if (event.envelope.length > CACHED_LIMIT_BYTES) return parts;
  event.encoded.sse = Buffer.concat(parts);
  return [event.encoded.sse];
}

const named = (name: string, data: unknown): Buffer => Buffer.from(`event: ${name}\ndata: ${JSON.stringify(data)}\n\n`);

/** How a stream says what there is to say. Each text is whole frames. */
export interface StreamWords {
  readonly greeting: (options: StreamOptions) => string;
  readonly slices: ReturnType<typeof createSlicer>;
  readonly gap: (firstAvailable: Seq) => Uint8Array;
  readonly ended: Uint8Array;
  readonly problem: (problem: BrokerError) => Uint8Array;
}

const OUR_WORDS: StreamWords = {
  greeting: ({ retryMs }) => `retry: ${retryMs}\n\n`,
  slices: createSlicer(sseEvent),
  gap: (firstAvailable) => named("gap", { first_available: firstAvailable }),
  ended: named("ended", {}),
  problem: (problem) => named("problem", problemBody(problem)),
};

/** Takes over a response whose head is not sent yet. `headers` are those of the route (CORS). A dialect has words of its own. */
export function openStream(
  response: ServerResponse,
  headers: Readonly<Record<string, string>>,
  options: StreamOptions,
  words: StreamWords = OUR_WORDS,
): EventStream {
  const closing = new AbortController();
  const { promise: closed, resolve: setClosed } = Promise.withResolvers<void>();
  response.writeHead(200, {
    ...headers,
    "content-type": "text/event-stream; charset=utf-8",
    "cache-control": "no-store, no-transform",
    "x-accel-buffering": "no",
  });
  response.write(words.greeting(options));
  const outlet = createOutlet(response, {
    inFlightBytes: options.inFlightBytes,
    slowReaderMs: options.slowReaderMs,
    slow: () => end(new BrokerError("slow_reader", "You read too slowly. Come back with the last id you have.")),
  });
  const comments = setInterval(
    () => outlet.control(() => response.write(": still here\n\n")),
    options.commentMs,
  ).unref();
  const shut = (): void => {
    closing.abort();
    clearInterval(comments);
    outlet.stop();
  };
  const end = (why?: "ended" | BrokerError): void => {
    if (closing.signal.aborted) return;
    shut();
    if (why === "ended") response.write(words.ended);
    else if (why !== undefined) response.write(words.problem(why));
    response.end();
    const cut = setTimeout(() => cutResponse(response), options.closeMs).unref();
    response.once("close", () => clearTimeout(cut));
  };
  // A write that meets a vanished client is not news: `close` follows.
  response.on("error", () => {});
  response.once("close", () => {
    shut();
    setClosed();
  });
  return {
    sink: {
      async events(events) {
        for (const slice of words.slices(events)) {
          if (!(await outlet.data(slice, closing.signal))) return;
        }
      },
      gap: (firstAvailable) => outlet.data([words.gap(firstAvailable)], closing.signal),
    },
    end,
    closing: closing.signal,
    closed,
  };
}
