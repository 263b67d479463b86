import { type ClientRequest, request as httpRequest, type IncomingMessage } from "node:http";
import { request as httpsRequest } from "node:https";
import type { Lookup } from "./target.ts";

/** Bytes of an answer that are read at most; nobody looks at them. */
const ANSWER_LIMIT_BYTES = 64 * 1024;

export interface Post {
  readonly url: URL;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string;
  readonly lookup: Lookup;
  readonly timeoutMs: number;
  /** The server stops. */
  readonly stopping: AbortSignal;
}

/** Lets the receiver finish its answer, up to the limit. The status is known by then, so how this ends does not matter. */
function drain(answer: IncomingMessage, request: ClientRequest): Promise<void> {
  return new Promise((resolve) => {
    let bytes = 0;
    answer.on("data", (chunk: Buffer) => {
      bytes += chunk.length;
      if (bytes > ANSWER_LIMIT_BYTES) request.destroy();
    });
    answer.on("error", () => resolve());
    answer.on("close", resolve);
  });
}

/**
 * One call over a connection of its own: a kept one could lead to an address that was checked long ago. Redirects are answers like any
 * other. Resolves with the HTTP status; rejects when there was none in time.
 */
export function post({ url, headers, body, lookup, timeoutMs, stopping }: Post): Promise<number> {
  const make = url.protocol === "https:" ? httpsRequest : httpRequest;
  const late = AbortSignal.timeout(timeoutMs);
  const signal = AbortSignal.any([late, stopping]);
  return new Promise((resolve, reject) => {
    const request = make(url, { method: "POST", headers, lookup, agent: false, signal });
    request.on("response", (answer) => {
      const status = answer.statusCode ?? 0;
      void drain(answer, request).then(() => resolve(status));
    });
    request.on("error", (error) => reject(late.aborted ? new Error(`no answer within ${timeoutMs} ms`) : error));
    request.end(body);
  });
}
