import type { Accepted, UserMessage } from "../protocol/commands.ts";
import type { CommandType, Delivery, Envelope, SessionView } from "../protocol/events.ts";
import type { CommandFrame, Cursor } from "../protocol/frames.ts";
import { isJsonObject, type JsonObject } from "../protocol/json.ts";
import { createChannel } from "./channel.ts";
import { PatchbayError } from "./errors.ts";
import type { SessionEvent } from "./events.ts";
import { expectEvent } from "./expect-event.ts";
import { type AnswerBody, createRequestWatch, type RequestHandler } from "./requests.ts";
import { createServing, type Served } from "./serve.ts";
import { asEvent } from "./server-frame.ts";
import type { ForkInput, SessionCalls, SessionUpdate } from "./sessions.ts";
import type { Place, Reader } from "./subscription.ts";
import { createTurnWatch, type TurnOutcome } from "./turn-watch.ts";
import { uuid } from "./uuid.ts";

export interface EventsOptions {
  /** Events after this number (default 0: everything); `head` = only what is new. */
  readonly after?: Cursor;
  /** With `stream_event` lines, which are shown at once and not kept (default true). */
  readonly previews?: boolean;
  /** Ends the loop quietly. */
  readonly signal?: AbortSignal;
  /** Told when retention removed what was asked for. Without it the loop throws `history_gone`. */
  readonly onGap?: (firstAvailable: number) => void;
}

export interface SendOptions {
  /** A UUID of your own: sent again with the same text, even by another process, it is still one message. */
  readonly id?: string;
  readonly delivery?: Delivery;
  /** Stops waiting. The turn goes on: use interrupt() to stop it. */
  readonly signal?: AbortSignal;
}

/** Resolves when the turn of this message has ended, well or not. Rejects when the message was refused. */
export interface Sent extends Promise<TurnOutcome> {
  readonly turnId: string;
  /** Resolves as soon as the message is durable. */
  readonly accepted: Promise<Accepted>;
}

/** One session, driven and watched over the client's socket. */
export interface ClientSession {
  readonly id: string;
  view(): Promise<SessionView>;
  /** A page of the log, ascending. */
  page(query?: {
    after?: Cursor;
    limit?: number;
    eventType?: string;
  }): Promise<{ events: SessionEvent[]; head: number; next: number }>;
  /** Every event after the cursor, in order and once, over any number of reconnections. Starts at once, not with the first read. */
  events(options?: EventsOptions): AsyncIterableIterator<SessionEvent>;
  send(message: string | UserMessage, options?: SendOptions): Sent;
  /** Called once for each open request, now and later. Returns the way to stop. What the handler throws goes to `onError`. */
  onRequest(handler: RequestHandler): () => void;
  /** A control_request of the CLI; resolves with the body of its answer. @throws PatchbayError agent_refused */
  control(
    request: JsonObject & { readonly subtype: string },
    options?: { readonly signal?: AbortSignal },
  ): Promise<JsonObject>;
  /**
   * Serves hooks and MCP servers of this program to the session's agent, for as long as this client is connected; after a broken link it
   * takes them over again. One call a session: a later one replaces it. Returns how to stop.
   */
  serve(served: Served): () => void;
  interrupt(): Promise<JsonObject>;
  setModel(model: string): Promise<JsonObject>;
  setPermissionMode(mode: string): Promise<JsonObject>;
  /** State, open requests and cost, as they change. */
  watch(options?: { readonly signal?: AbortSignal }): AsyncIterableIterator<SessionView>;
  update(change: SessionUpdate): Promise<SessionView>;
  /** A new session that goes on with this one's conversation, up to and including the message `at` (default: all of it). */
  fork(input?: ForkInput): Promise<ClientSession>;
  /** Ends the agent; the session stays readable. */
  end(): Promise<void>;
  /** Ends it and removes its log and folder. */
  purge(): Promise<void>;
}

/** What a session handle needs of its client. */
export interface SessionLink {
  readonly calls: SessionCalls;
  /** A handle of another session. */
  session(id: string): ClientSession;
  join(reader: Reader): Place;
  command(frame: CommandFrame): Promise<Accepted>;
  report(error: unknown): void;
  watch(wanted: (view: SessionView) => boolean, signal?: AbortSignal): AsyncIterableIterator<SessionView>;
}

type Wants = Parameters<typeof createRequestWatch>[3];

/** Unread text of one loop, in characters, from which on the server keeps it for us: the log is the queue. */
const UNREAD_LIMIT = 16 * 1024 * 1024;

function readEvents(link: SessionLink, options: EventsOptions): AsyncIterableIterator<SessionEvent> {
  const { after = 0, previews = true, signal, onGap } = options;
  const stop = () => channel.end();
  let place: Place | undefined;
  const channel = createChannel<SessionEvent>({
    limit: UNREAD_LIMIT,
    full: () => place?.pause(),
    drained: () => place?.resume(),
    left() {
      signal?.removeEventListener("abort", stop);
      place?.leave();
    },
  });
  if (signal?.aborted === true) {
    channel.end();
    return channel;
  }
  signal?.addEventListener("abort", stop, { once: true });
  place = link.join({
    after,
    previews,
    standing: false,
    event: (event, length) => channel.write(event, length),
    subscribed: () => {},
    gap(firstAvailable) {
      if (onGap !== undefined) return onGap(firstAvailable);
      const details = { first_available: firstAvailable };
      const message = `Retention removed events before ${firstAvailable}; read from there.`;
      channel.fail(new PatchbayError({ code: "history_gone", message, retry: false, details }));
    },
    ended: () => channel.end(),
    failed: (error) => channel.fail(error),
  });
  return channel;
}

function controlAnswer(event: SessionEvent, id: string): JsonObject | PatchbayError | undefined {
  if (event.event_type !== "control_response" || event.origin === "USER_EVENT") return undefined;
  const { response } = event.payload;
  if (!isJsonObject(response) || (event.command_id !== id && response["request_id"] !== id)) return undefined;
  if (response["subtype"] === "success") return isJsonObject(response["response"]) ? response["response"] : {};
  const message = typeof response["error"] === "string" ? response["error"] : "The agent refused.";
  return new PatchbayError({ code: "agent_refused", message, retry: false });
}

/** A session's handle. It holds nothing: any number of handles of one session share the client's subscription. */
export function createSession(id: string, link: SessionLink): ClientSession {
  const command = (commandId: string, event_type: CommandType, payload: unknown, delivery?: Delivery) =>
    link.command({
      type: "command",
      id: commandId,
      session_id: id,
      event_type,
      payload,
      ...(delivery && { delivery }),
    });

  function send(message: string | UserMessage, options: SendOptions = {}): Sent {
    const commandId = options.id ?? uuid();
    const turnId = typeof message === "string" ? commandId : (message.uuid ?? commandId);
    const payload = typeof message === "string" ? { text: message, uuid: turnId } : { ...message, uuid: turnId };
    const look = () => {
      const watch = createTurnWatch(turnId);
      return (event: SessionEvent) => watch.push(event);
    };
    const turn = expectEvent(link.join, look, options.signal);
    async function accept(): Promise<Accepted> {
      try {
        await turn.ready;
        const accepted = await command(commandId, "query", payload, options.delivery);
        turn.cover(accepted.seq);
        return accepted;
      } catch (error) {
        turn.giveUp(error);
        throw error;
      }
    }
    const accepted = accept();
    accepted.catch(() => {});
    return Object.assign(turn.met, { turnId, accepted });
  }

  async function control(
    request: JsonObject & { readonly subtype: string },
    options: { readonly signal?: AbortSignal } = {},
  ): Promise<JsonObject> {
    const requestId = uuid();
    const answer = expectEvent(link.join, () => (event) => controlAnswer(event, requestId), options.signal);
    try {
      await answer.ready;
      await command(requestId, "control_request", {
        type: "control_request",
        request_id: requestId,
        request,
      });
    } catch (error) {
      answer.giveUp(error);
      throw error;
    }
    const answered = await answer.met;
    if (answered instanceof PatchbayError) throw answered;
    return answered;
  }

  /** Joins as a reader that answers requests; returns how to leave. */
  function answering(handler: RequestHandler, wants: Wants, offer: Pick<Reader, "answers" | "register">): () => void {
    const answer = (body: AnswerBody) =>
      command(uuid(), "control_response", { type: "control_response", response: body });
    const watch = createRequestWatch(handler, answer, link.report, wants);
    const place = link.join({
      after: "head",
      previews: false,
      standing: true,
      ...offer,
      event: watch.event,
      subscribed: (_, standing) => standing && watch.subscribed(standing),
      gap: () => {},
      ended: watch.closed,
      failed(error) {
        watch.closed();
        if (error.code !== "closed") link.report(error);
      },
    });
    return () => {
      place.leave();
      watch.closed();
    };
  }

  const onRequest = (handler: RequestHandler) =>
    answering(handler, (request) => request.owner === undefined, {
      answers: ["permissions", "questions", "dialogs", "elicitation"],
    });

  function serve(served: Served): () => void {
    const { registration, handle } = createServing(served);
    const isOurs: Wants = (request, owner) => request.owner !== undefined && request.owner === owner;
    return answering(handle, isOurs, { answers: ["hooks", "mcp"], register: registration });
  }

  return {
    id,
    view: () => link.calls.get(id),
    async page(query = {}) {
      const page = await link.calls.page(id, query);
      return { ...page, events: page.events.map((envelope: Envelope) => asEvent(envelope)) };
    },
    events: (options = {}) => readEvents(link, options),
    send,
    onRequest,
    serve,
    control,
    interrupt: () => control({ subtype: "interrupt" }),
    setModel: (model) => control({ subtype: "set_model", model }),
    setPermissionMode: (mode) => control({ subtype: "set_permission_mode", mode }),
    watch: (options = {}) => link.watch((view) => view.id === id, options.signal),
    update: (change) => link.calls.update(id, change),
    fork: async (input) => link.session((await link.calls.fork(id, input)).id),
    end: () => link.calls.end(id),
    purge: () => link.calls.purge(id),
  };
}
