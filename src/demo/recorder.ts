import type { IncomingHttpHeaders } from "node:http";
import type { Conversation } from "./conversation.ts";
import type { SideRequest } from "./side-requests.ts";

/** `turn`: a request that the script answers. The rest is answered harmlessly. */
export type RequestKind = "turn" | SideRequest["kind"] | "count_tokens" | "probe" | "unknown";

/** How the answer went: `aborted` means that the client went away first. */
type Outcome = "pending" | "complete" | "aborted";

/** One HTTP request, as it arrived. */
export interface RecordedRequest {
  /** 1 for the first request of this model, counted in the order in which requests were received whole. */
  readonly number: number;
  readonly receivedAtMs: number;
  readonly method: string;
  /** Path without the query. */
  readonly path: string;
  readonly headers: IncomingHttpHeaders;
  readonly bodyBytes: number;
  /** Parsed JSON; undefined when there was none. */
  readonly body: unknown;
  readonly kind: RequestKind;
  /** `conversation.text` is the exact user text that reached the model. Empty for anything but a Messages request. */
  readonly conversation: Conversation;
  readonly outcome: Outcome;
  /** Resolves when the answer has been sent or given up. */
  readonly settled: Promise<Outcome>;
}

interface WaitOptions {
  /** Only requests with a greater number count. Default 0: earlier ones count too. */
  readonly after?: number;
  /** Default 10 000. */
  readonly timeoutMs?: number;
}

/** Keeps the newest requests and tells listeners. */
export interface Recorder {
  readonly requests: readonly RecordedRequest[];
  add(request: Omit<RecordedRequest, "number" | "outcome" | "settled">): RecordingSlot;
  onRequest(listener: (request: RecordedRequest) => void): () => void;
  waitForRequest(predicate: (request: RecordedRequest) => boolean, options?: WaitOptions): Promise<RecordedRequest>;
}

interface RecordingSlot {
  readonly request: RecordedRequest;
  settle(outcome: Outcome): void;
}

type Settling = Omit<RecordedRequest, "outcome"> & { outcome: Outcome };

/** `maxRequests` bounds the memory: older requests are forgotten. */
export function createRecorder(maxRequests: number): Recorder {
  const requests: RecordedRequest[] = [];
  const listeners = new Set<(request: RecordedRequest) => void>();
  let count = 0;
  const onRequest: Recorder["onRequest"] = (listener) => {
    listeners.add(listener);
    return () => listeners.delete(listener);
  };
  return {
    requests,
    onRequest,
    add(fields) {
      count += 1;
      const { promise, resolve } = Promise.withResolvers<Outcome>();
      const request: Settling = { ...fields, number: count, outcome: "pending", settled: promise };
      requests.push(request);
      if (requests.length > maxRequests) requests.shift();
      for (const listener of listeners) listener(request);
      return {
        request,
        settle(outcome) {
          if (request.outcome !== "pending") return;
          request.outcome = outcome;
          resolve(outcome);
        },
      };
    },
    waitForRequest(predicate, { after = 0, timeoutMs = 10_000 } = {}) {
      const fits = (request: RecordedRequest): boolean => request.number > after && predicate(request);
      const past = requests.find(fits);
      if (past !== undefined) return Promise.resolve(past);
      return waitFor(fits, requests, onRequest, timeoutMs);
    },
  };
}

/** @throws Error naming the requests seen when none fits in time */
async function waitFor(
  fits: (request: RecordedRequest) => boolean,
  requests: readonly RecordedRequest[],
  onRequest: Recorder["onRequest"],
  timeoutMs: number,
): Promise<RecordedRequest> {
  const { promise, resolve, reject } = Promise.withResolvers<RecordedRequest>();
  const stop = onRequest((request) => fits(request) && resolve(request));
  const seen = (): string => requests.map((request) => `${request.number} ${request.kind}`).join(", ");
  const late = (): void => reject(new Error(`no such model request within ${timeoutMs} ms; seen: ${seen()}`));
  const timer = setTimeout(late, timeoutMs);
  try {
    return await promise;
  } finally {
    stop();
    clearTimeout(timer);
  }
}
