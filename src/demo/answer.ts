import type { IncomingMessage, ServerResponse } from "node:http";
import { readConversation } from "./conversation.ts";
import { fieldOf } from "./fields.ts";
import { errorTypeOf } from "./play.ts";
import type { RecordedRequest, Recorder, RequestKind } from "./recorder.ts";
import { sendError, sendJson, tokensOf } from "./reply-sinks.ts";
import { type SideRequest, sideRequestOf } from "./side-requests.ts";

/** A recorded /v1/messages request that waits for its answer. */
interface MessageRequest {
  readonly request: RecordedRequest;
  /** Set when the CLI asks for itself; then the script has no say. */
  readonly side: SideRequest | undefined;
  readonly response: ServerResponse;
  /** Aborts when the client has gone. */
  readonly signal: AbortSignal;
}

export type AnswerMessage = (message: MessageRequest) => Promise<void>;

/** A body above this is refused with 413; the real API allows 32 MB. */
const MAX_BODY_BYTES = 256 * 1024 * 1024;

/** Reads one HTTP request whole, records it, and answers it or hands it on. */
export async function answerRequest(
  incoming: IncomingMessage,
  response: ServerResponse,
  recorder: Recorder,
  answerMessage: AnswerMessage,
): Promise<void> {
  const left = new AbortController();
  response.once("close", () => left.abort());
  const bytes = await readBody(incoming);
  if (bytes === undefined) {
    return sendError(response, { status: 413, type: errorTypeOf(413), message: "the body is too large" });
  }
  const body = parseJson(bytes);
  const { headers, method = "", url = "" } = incoming;
  const path = url.split("?", 1)[0] ?? "";
  const isMessage = method === "POST" && path === "/v1/messages" && hasMessages(body);
  const side = isMessage ? sideRequestOf(body, headers) : undefined;
  const kind = isMessage ? (side?.kind ?? "turn") : otherKind(method, path, body);
  const conversation = readConversation(body, headers);
  const bodyBytes = bytes.length;
  const slot = recorder.add({ receivedAtMs: Date.now(), method, path, headers, bodyBytes, body, kind, conversation });
  response.once("close", () => slot.settle(response.writableFinished ? "complete" : "aborted"));
  if (isMessage) await answerMessage({ request: slot.request, side, response, signal: left.signal });
  else if (kind === "probe") response.writeHead(200).end();
  else if (kind === "count_tokens") sendJson(response, 200, { input_tokens: tokensOf(bodyBytes) });
  else sendRefusal(response, method, path);
}

function otherKind(method: string, path: string, body: unknown): RequestKind {
  // 2.1.197 sends HEAD / to warm the connection, 2.1.332 HEAD /api/hello.
  if (method === "HEAD") return "probe";
  return method === "POST" && path === "/v1/messages/count_tokens" && hasMessages(body) ? "count_tokens" : "unknown";
}

function hasMessages(body: unknown): boolean {
  return Array.isArray(fieldOf(body, "messages"));
}

function sendRefusal(response: ServerResponse, method: string, path: string): void {
  const isBadMessage = method === "POST" && (path === "/v1/messages" || path === "/v1/messages/count_tokens");
  const status = isBadMessage ? 400 : 404;
  const message = isBadMessage ? "messages: a list is required" : `no such resource: ${method} ${path}`;
  sendError(response, { status, type: errorTypeOf(status), message });
}

/** Undefined when the body is over the limit. */
async function readBody(incoming: IncomingMessage): Promise<Buffer | undefined> {
  const chunks: Buffer[] = [];
  let size = 0;
  for await (const chunk of incoming) {
    size += chunk.length;
    if (size <= MAX_BODY_BYTES) chunks.push(chunk);
  }
  return size <= MAX_BODY_BYTES ? Buffer.concat(chunks, size) : undefined;
}

function parseJson(bytes: Buffer): unknown {
  try {
    return JSON.parse(bytes.toString("utf8"));
  } catch {
    return undefined;
  }
}
