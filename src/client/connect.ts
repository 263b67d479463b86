import type { SessionView } from "../protocol/events.ts";
import type { ServerFrame } from "../protocol/frames.ts";
import { isJsonObject } from "../protocol/json.ts";
import { BACKOFF_DEFAULTS, type BackoffOptions } from "./backoff.ts";
import { type Channel, createChannel } from "./channel.ts";
import { createConnection, type Status } from "./connection.ts";
import { closedError, PatchbayError } from "./errors.ts";
import { createHttp, type Http } from "./http.ts";
import { createOutbox } from "./outbox.ts";
import { type ClientSession, createSession, type SessionLink } from "./session.ts";
import { createSessionCalls, expectBody, type SessionCalls, type SessionInput } from "./sessions.ts";
import { createSubscription, type Subscription } from "./subscription.ts";

type Supplier = string | (() => string | Promise<string>);

export interface ConnectOptions {
  /** Where the server is, such as `https://patchbay.example.org`. */
  readonly url: string;
  /** A key or token, or a function that is asked before each use. Without it, a browser's cookie authenticates. */
  readonly token?: Supplier;
  /** A ticket for the socket instead of a token. Tickets work once, so coming back needs a function that fetches another. */
  readonly ticket?: Supplier;
  readonly fetch?: typeof fetch;
  readonly WebSocket?: typeof WebSocket;
  /** How a lost connection is tried again (default: within 0.25 s at first, 15 s at last). */
  readonly reconnect?: Partial<BackoffOptions>;
  readonly onStatus?: (status: Status) => void;
  /** What a request handler threw (default: it becomes an unhandled error). */
  readonly onError?: (error: unknown) => void;
}

/** One server, as one principal. */
export interface Client {
  readonly sessions: Omit<SessionCalls, "page">;
  /** A handle of a session that exists. Asks nothing yet. */
  session(id: string): ClientSession;
  createSession(input?: SessionInput): Promise<ClientSession>;
  /** Every session's state, open requests and cost, as they change. */
  watch(options?: { readonly signal?: AbortSignal }): AsyncIterableIterator<SessionView>;
  /** A single-use ticket with this principal's rights or less (contract 4). */
  createTicket(input?: {
    session_id?: string;
    roles?: readonly string[];
    ttl_s?: number;
  }): Promise<{ ticket: string; expires_at_ms: number }>;
  /** Any other call of openapi.yaml. */
  readonly http: Http;
  status(): Status;
  /** Tries at once if it waits to reconnect. */
  reconnectNow(): void;
  /** Closes the socket; whatever waits is told `closed`. */
  close(): void;
}

const WELCOME_TIMEOUT_MS = 20_000;
/** Refusals that trying again with the same credentials cannot change. */
const REFUSALS: readonly string[] = ["unauthenticated", "expired", "forbidden", "origin_refused", "host_refused"];

const supply = async (supplier: Supplier | undefined): Promise<string | undefined> =>
  typeof supplier === "function" ? supplier() : supplier;

const isTicket = (value: unknown): value is { ticket: string; expires_at_ms: number } =>
  isJsonObject(value) && typeof value["ticket"] === "string" && typeof value["expires_at_ms"] === "number";

const ticketSpent = (): PatchbayError =>
  new PatchbayError({
    code: "unauthenticated",
    message: "The ticket was refused or is used up; tickets work once.",
    retry: false,
  });

function raise(error: unknown): void {
  queueMicrotask(() => {
    throw error;
  });
}

interface Watcher {
  readonly wanted: (view: SessionView) => boolean;
  readonly channel: Channel<SessionView>;
}

/** Watchers of session summaries; they share what one `watch` frame brings. */
function createWatchers(ask: () => void) {
  const watchers = new Set<Watcher>();
  return {
    watch(wanted: (view: SessionView) => boolean, signal?: AbortSignal): AsyncIterableIterator<SessionView> {
      const stop = () => watcher.channel.end();
      const left = () => {
        signal?.removeEventListener("abort", stop);
        watchers.delete(watcher);
      };
      const channel = createChannel<SessionView>({ limit: Number.POSITIVE_INFINITY, full() {}, drained() {}, left });
      const watcher: Watcher = { wanted, channel };
      if (signal?.aborted === true) channel.end();
      else {
        signal?.addEventListener("abort", stop, { once: true });
        watchers.add(watcher);
        ask();
      }
      return channel;
    },
    opened: () => watchers.size > 0 && ask(),
    frame({ type: _, ...view }: Extract<ServerFrame, { type: "session" }>) {
      for (const { wanted, channel } of watchers) if (wanted(view)) channel.write(view, 1);
    },
    closed(error: PatchbayError) {
      for (const { channel } of [...watchers]) channel.fail(error);
    },
  };
}

/** A client of one server. Connects when something first needs the socket. */
export function connect(options: ConnectOptions): Client {
  const origin = new URL(options.url).origin;
  const http = createHttp({
    origin,
    fetch: options.fetch ?? ((...call) => fetch(...call)),
    token: () => supply(options.token),
  });
  const calls = createSessionCalls(http);
  const subscriptions = new Map<string, Subscription>();
  let status: Status = { state: "idle" };
  let closed: PatchbayError | undefined;

  const outbox = createOutbox((frame) => connection.send(frame));
  const watchers = createWatchers(() => connection.send({ type: "watch" }));

  async function address(): Promise<string> {
    const url = new URL("/v1/ws", origin.replace(/^http/, "ws"));
    const ticket = await supply(options.ticket);
    if (ticket !== undefined) url.searchParams.set("ticket", ticket);
    return url.href;
  }

  /** Browsers hide why an upgrade was refused; a plain call says it. */
  async function probe(): Promise<PatchbayError | undefined> {
    try {
      if (options.ticket === undefined) await calls.list({ limit: 1 });
      else await http("GET", "/healthz");
    } catch (error) {
      return error instanceof PatchbayError && REFUSALS.includes(error.code) ? error : undefined;
    }
    // The server is there and refused; a function has another ticket the next time.
    return typeof options.ticket === "string" ? ticketSpent() : undefined;
  }

  function onFrame(frame: ServerFrame, length: number): void {
    if (frame.type === "session") watchers.frame(frame);
    else if (!outbox.frame(frame) && "session_id" in frame && frame.session_id !== undefined) {
      subscriptions.get(frame.session_id)?.frame(frame, length);
    }
  }

  const connection = createConnection({
    address,
    probe,
    token: () => (options.ticket === undefined ? supply(options.token) : undefined),
    WebSocket: options.WebSocket ?? WebSocket,
    backoff: { ...BACKOFF_DEFAULTS, ...options.reconnect },
    welcomeTimeoutMs: WELCOME_TIMEOUT_MS,
    onStatus(next) {
      status = next;
      options.onStatus?.(next);
    },
    onOpen() {
      for (const subscription of subscriptions.values()) subscription.opened();
      watchers.opened();
      outbox.opened();
    },
    onFrame,
    onLost(code) {
      for (const subscription of subscriptions.values()) subscription.lost();
      if (code === 1009) outbox.refuseLargest();
    },
    onClosed(error) {
      closed = error;
      for (const subscription of subscriptions.values()) subscription.closed(error);
      watchers.closed(error);
      outbox.closed(error);
      globalThis.removeEventListener?.("online", connection.wake);
    },
  });
  globalThis.addEventListener?.("online", connection.wake);

  function subscriptionOf(id: string): Subscription {
    const known = subscriptions.get(id);
    if (known !== undefined) return known;
    const fresh = createSubscription(id, connection);
    subscriptions.set(id, fresh);
    if (status.state === "open") fresh.opened();
    return fresh;
  }

  const refuseClosed = (): void => {
    if (closed !== undefined) throw closed.code === "closed" ? closedError() : closed;
    connection.start();
  };
  const link: Omit<SessionLink, "join" | "session"> = {
    calls,
    async command(frame) {
      refuseClosed();
      return outbox.add(frame);
    },
    report: options.onError ?? raise,
    watch(wanted, signal) {
      refuseClosed();
      return watchers.watch(wanted, signal);
    },
  };
  const session = (id: string): ClientSession =>
    createSession(id, {
      ...link,
      session,
      join(reader) {
        refuseClosed();
        return subscriptionOf(id).join(reader);
      },
    });

  return {
    sessions: calls,
    session,
    createSession: async (input) => session((await calls.create(input)).id),
    watch: ({ signal } = {}) => link.watch(() => true, signal),
    createTicket: async (input = {}) => expectBody(await http("POST", "/v1/tickets", { body: input }), isTicket),
    http,
    status: () => status,
    reconnectNow: connection.wake,
    close: connection.close,
  };
}
