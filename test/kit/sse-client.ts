import http from "node:http";
import type { Readable } from "node:stream";
import { connectHttp2 } from "./http2-client.ts";

/** One event of a stream, as the HTML standard parses it (9.2.6). */
interface SseEvent {
  readonly id: string;
  readonly event: string;
  readonly data: string;
}

/** A stream that keeps everything from the first byte. */
export interface SseClient extends Disposable {
  readonly status: number;
  readonly headers: http.IncomingHttpHeaders;
  readonly events: readonly SseEvent[];
  readonly comments: readonly string[];
  readonly retryMs: number | undefined;
  /** Resolves once the events so far fit. */
  until(fits: (events: readonly SseEvent[]) => boolean): Promise<readonly SseEvent[]>;
  /** Resolves once there are so many comments. */
  commentsUntil(count: number): Promise<void>;
  pause(): void;
  resume(): void;
  readonly closed: Promise<void>;
}

export interface SseOptions {
  readonly headers?: Readonly<Record<string, string>>;
  /** Over an HTTP/2 connection of its own. */
  readonly http2?: boolean;
}

interface ParserState {
  readonly events: SseEvent[];
  readonly comments: string[];
  retryMs: number | undefined;
}

const PATIENCE_MS = 10_000;

/** The standard's parser: lines end at CR LF, LF or CR, fields at the first colon, an event at an empty line. */
export function createSseParser(): ParserState & { push(text: string): void } {
  const state: ParserState = { events: [], comments: [], retryMs: undefined };
  let rest = "";
  const pieces: string[] = [];
  let id = "";
  let event = "";
  let data: string[] = [];
  const field = (name: string, value: string): void => {
    if (name === "id") id = value;
    else if (name === "event") event = value;
    else if (name === "data") data.push(value);
    else if (name === "retry") state.retryMs = Number(value);
  };
  const line = (text: string): void => {
    if (text === "") {
      if (data.length > 0) state.events.push({ id, event: event || "message", data: data.join("\n") });
      event = "";
      data = [];
    } else if (text.startsWith(":")) {
      state.comments.push(text.slice(1));
    } else {
      const colon = text.indexOf(":");
      if (colon === -1) field(text, "");
      else field(text.slice(0, colon), text.slice(colon + 1).replace(/^ /, ""));
    }
  };
  return Object.assign(state, {
    push(text: string): void {
      // A field of megabytes comes in many pieces: it is put together once, when its end is there.
      if (!/[\r\n]/.test(text) && !rest.endsWith("\r")) return void pieces.push(text);
      rest += pieces.splice(0).join("") + text;
      // A CR at the very end may be half of a CR LF: it waits for more.
      for (let match = /\r\n|\n|\r(?!$)/.exec(rest); match !== null; match = /\r\n|\n|\r(?!$)/.exec(rest)) {
        const found = rest.slice(0, match.index);
        rest = rest.slice(match.index + match[0].length);
        line(found);
      }
    },
  });
}

interface Opened {
  readonly status: number;
  readonly headers: http.IncomingHttpHeaders;
  readonly body: Readable;
}

async function openHttp1(url: string, headers: Readonly<Record<string, string>>): Promise<Opened> {
  const response = await new Promise<http.IncomingMessage>((resolve, reject) => {
    http.get(url, { headers, agent: false }, resolve).on("error", reject);
  });
  return { status: response.statusCode ?? 0, headers: response.headers, body: response };
}

async function openHttp2(url: string, headers: Readonly<Record<string, string>>): Promise<Opened> {
  const connection = await connectHttp2(url);
  const { pathname, search } = new URL(url);
  const answer = await connection.ask("GET", pathname + search, headers);
  answer.body.once("close", () => connection[Symbol.dispose]());
  return answer;
}

/** Opens a stream, whatever its status is. */
export async function openSse(url: string, { headers = {}, http2 = false }: SseOptions = {}): Promise<SseClient> {
  const open = http2 ? openHttp2 : openHttp1;
  const { status, headers: received, body: response } = await open(url, { accept: "text/event-stream", ...headers });
  const parser = createSseParser();
  const decoder = new TextDecoder();
  const watchers = new Set<() => void>();
  const notify = (): void => {
    for (const watcher of watchers) watcher();
  };
  response.on("data", (chunk: Buffer) => {
    parser.push(decoder.decode(chunk, { stream: true }));
    notify();
  });
  response.on("error", () => {});
  const closed = new Promise<void>((resolve) => response.once("close", resolve));
  function wait(done: () => boolean, what: string): Promise<void> {
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    const check = (): void => {
      if (done()) resolve();
    };
    const timer = setTimeout(
      () => reject(new Error(`${what} did not come; ${parser.events.length} events did`)),
      PATIENCE_MS,
    );
    watchers.add(check);
    void closed.then(() => reject(new Error(`the stream ended before ${what} came`)));
    check();
    return promise.finally(() => {
      clearTimeout(timer);
      watchers.delete(check);
    });
  }
  return {
    status,
    headers: received,
    events: parser.events,
    comments: parser.comments,
    get retryMs() {
      return parser.retryMs;
    },
    async until(fits) {
      await wait(() => fits(parser.events), "what was waited for");
      return parser.events;
    },
    commentsUntil: (count) => wait(() => parser.comments.length >= count, `comment ${count}`),
    pause: () => void response.pause(),
    resume: () => void response.resume(),
    closed,
    [Symbol.dispose]: () => void response.destroy(),
  };
}
