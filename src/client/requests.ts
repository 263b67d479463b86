import type { OpenRequest, RequestOutcome } from "../protocol/events.ts";
import { isJsonObject } from "../protocol/json.ts";
import { type Question, questionsOf } from "../protocol/requests.ts";
import { PatchbayError } from "./errors.ts";
import type { SessionEvent } from "./events.ts";
import type { Subscribed } from "./server-frame.ts";

/** What became of an answer. Only the first one reaches the agent. */
export type Answered =
  | { readonly outcome: "accepted"; readonly seq: number }
  /** Somebody else was first. */
  | {
      readonly outcome: "already_answered";
      readonly decidedBy: string | undefined;
      readonly details: Readonly<Record<string, unknown>>;
    }
  /** Cancelled, expired or lost with its agent: nobody waits any more. */
  | { readonly outcome: "settled"; readonly details: Readonly<Record<string, unknown>> };

/** Something the agent waits for, with the ways to answer it. An answer that does not fit is refused and the request stays open. */
export interface IncomingRequest extends OpenRequest {
  /** Aborts when it is resolved, here or elsewhere; `reason` is the Resolution. */
  readonly signal: AbortSignal;
  readonly toolName: string | undefined;
  /** The tool's input as the agent wants it. */
  readonly input: Readonly<Record<string, unknown>>;
  /** Filled for kind `question`. */
  readonly questions: readonly Question[];
  /** Lets the tool run, with another input if one is given. */
  allow(updatedInput?: Readonly<Record<string, unknown>>): Promise<Answered>;
  /** Refuses; the agent reads the message. */
  deny(message: string): Promise<Answered>;
  /** Answers a question: the question's text to the chosen label, several labels, or words of one's own. */
  answer(answers: Readonly<Record<string, string | readonly string[]>>): Promise<Answered>;
  /** Any other answer, as the CLI documents it for this subtype. */
  respond(response: Readonly<Record<string, unknown>>): Promise<Answered>;
  /** Tells the agent that the request failed. */
  fail(message: string): Promise<Answered>;
}

export interface Resolution {
  readonly outcome: RequestOutcome;
  readonly decision?: Readonly<Record<string, unknown>>;
  readonly decidedBy?: string;
}

export type RequestHandler = (request: IncomingRequest) => unknown;

/** The body of a control_response's `response`. */
export type AnswerBody =
  | { readonly subtype: "success"; readonly request_id: string; readonly response: Readonly<Record<string, unknown>> }
  | { readonly subtype: "error"; readonly request_id: string; readonly error: string };
export type SendAnswer = (body: AnswerBody) => Promise<{ readonly seq: number }>;

async function tell(send: SendAnswer, body: AnswerBody): Promise<Answered> {
  try {
    const { seq } = await send(body);
    return { outcome: "accepted", seq };
  } catch (error) {
    if (!(error instanceof PatchbayError)) throw error;
    const details = error.details ?? {};
    const { decided_by: by } = details;
    if (error.code === "request_already_answered") {
      return { outcome: "already_answered", decidedBy: typeof by === "string" ? by : undefined, details };
    }
    if (error.code === "request_settled") return { outcome: "settled", details };
    throw error;
  }
}

function incoming(request: OpenRequest, signal: AbortSignal, send: SendAnswer): IncomingRequest {
  const { tool_name: tool, input: raw } = request.request;
  const input = isJsonObject(raw) ? raw : {};
  const respond = (response: Readonly<Record<string, unknown>>) =>
    tell(send, { subtype: "success", request_id: request.request_id, response });
  // 2.1.197 needs updatedInput with every allow, so it is always there.
  const allow = (updatedInput = input) => respond({ behavior: "allow", updatedInput });
  return {
    ...request,
    signal,
    toolName: typeof tool === "string" ? tool : undefined,
    input,
    questions: questionsOf(request),
    allow,
    deny: (message) => respond({ behavior: "deny", message }),
    answer(answers) {
      const texts = Object.entries(answers).map(([question, chosen]) => [
        question,
        typeof chosen === "string" ? chosen : chosen.join(", "),
      ]);
      return allow({ ...input, answers: Object.fromEntries(texts) });
    },
    respond,
    fail: (message) => tell(send, { subtype: "error", request_id: request.request_id, error: message }),
  };
}

/** Which requests are open, and who has been asked about them. */
export interface RequestWatch {
  /** What is open at a known head: new ones are offered; those that are gone are resolved by an event that follows. */
  subscribed(standing: Subscribed): void;
  event(event: SessionEvent): void;
  closed(): void;
}

/**
 * Offers each open request once: from the list that comes with a subscription, and from `request.opened` beyond its head; never from
 * a replayed line (contract 5).
 */
export function createRequestWatch(
  handler: RequestHandler,
  send: SendAnswer,
  report: (error: unknown) => void,
  wants: (request: OpenRequest, owner: string | undefined) => boolean,
): RequestWatch {
  const offered = new Map<string, AbortController>();
  let head = Number.POSITIVE_INFINITY;
  let owner: string | undefined;

  async function call(request: IncomingRequest): Promise<void> {
    try {
      await handler(request);
    } catch (error) {
      // Who closes the client knows that it answers no more.
      if (!(error instanceof PatchbayError && error.code === "closed")) report(error);
    }
  }

  function offer(request: OpenRequest): void {
    if (offered.has(request.request_id) || !wants(request, owner)) return;
    const controller = new AbortController();
    offered.set(request.request_id, controller);
    void call(incoming(request, controller.signal, send));
  }

  return {
    subscribed(standing) {
      head = standing.head;
      owner = standing.owner;
      for (const request of standing.open_requests) offer(request);
    },
    event(event) {
      if (event.origin !== "SYSTEM_EVENT") return;
      if (event.event_type === "registration.changed") {
        // A newer connection of the same owner has taken over; what is asked from now on is asked there.
        if (event.seq > head && event.payload.connected && event.payload.owner === owner) owner = undefined;
      } else if (event.event_type === "request.opened") {
        if (event.seq > head) offer(event.payload);
      } else if (event.event_type === "request.resolved") {
        const { request_id, outcome, decision, decided_by } = event.payload;
        const resolution: Resolution = {
          outcome,
          ...(decision && { decision }),
          ...(decided_by !== undefined && { decidedBy: decided_by }),
        };
        offered.get(request_id)?.abort(resolution);
        // Kept for the ids' sake: an id that came back in a stale list must not be offered again.
        if (offered.has(request_id) && offered.size > 1000) offered.delete(request_id);
      }
    },
    closed() {
      for (const controller of offered.values()) controller.abort();
      offered.clear();
    },
  };
}
