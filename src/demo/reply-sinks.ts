import { once } from "node:events";
import type { ServerResponse } from "node:http";
import { type ApiError, chunksOf, type ReplySink } from "./play.ts";

/** What both forms of an answer say about the message. */
export interface MessageHead {
  readonly id: string;
  readonly model: string;
  readonly inputTokens: number;
  readonly signal: AbortSignal;
}

const INPUT_CHUNK_CHARS = 4096;

/** Nobody checks it: the CLI only sends it back. */
const SIGNATURE = "c2NyaXB0ZWQ=";

/** The events of one streamed message: opened on first use, blocks numbered. */
function createEventWriter(response: ServerResponse, head: MessageHead) {
  let open: "text" | "thinking" | undefined;
  let index = -1;
  const emit = async (type: string, fields: Record<string, unknown>): Promise<void> => {
    head.signal.throwIfAborted();
    const event = `event: ${type}\ndata: ${JSON.stringify({ type, ...fields })}\n\n`;
    if (!response.write(event)) await once(response, "drain", { signal: head.signal });
  };
  const begin = async (): Promise<void> => {
    if (response.headersSent) return;
    response.writeHead(200, { "content-type": "text/event-stream; charset=utf-8", "cache-control": "no-cache" });
    await emit("message_start", { message: messageOf(head, [], null, 1) });
    await emit("ping", {});
  };
  const delta = (value: Record<string, unknown>): Promise<void> => emit("content_block_delta", { index, delta: value });
  const closeBlock = async (): Promise<void> => {
    if (open === "thinking") await delta({ type: "signature_delta", signature: SIGNATURE });
    if (open !== undefined) await emit("content_block_stop", { index });
    open = undefined;
  };
  const openBlock = async (block: Block): Promise<void> => {
    await begin();
    if (open !== undefined && open === block.type) return;
    await closeBlock();
    index += 1;
    open = block.type === "tool_use" ? undefined : block.type;
    await emit("content_block_start", { index, content_block: block });
  };
  const stopBlock = (): Promise<void> => emit("content_block_stop", { index });
  return { emit, begin, delta, openBlock, closeBlock, stopBlock };
}

/** Answers as an event stream, the way the Messages API does with `stream: true`. */
export function createStreamSink(response: ServerResponse, head: MessageHead): ReplySink {
  const { emit, begin, delta, openBlock, closeBlock, stopBlock } = createEventWriter(response, head);
  let outputChars = 0;
  return {
    async append(kind, text) {
      await openBlock(kind === "text" ? { type: "text", text: "" } : { type: "thinking", thinking: "", signature: "" });
      outputChars += text.length;
      await delta(kind === "text" ? { type: "text_delta", text } : { type: "thinking_delta", thinking: text });
    },
    async callTool(id, name, input) {
      await openBlock({ type: "tool_use", id, name, input: {} });
      const json = JSON.stringify(input);
      outputChars += json.length;
      for (const chunk of chunksOf(json, INPUT_CHUNK_CHARS)) {
        await delta({ type: "input_json_delta", partial_json: chunk });
      }
      await stopBlock();
    },
    async fail(error) {
      if (!response.headersSent) return sendError(response, error);
      await emit("error", { error: { type: error.type, message: error.message } });
      response.end();
    },
    async cut() {
      await begin();
      // The bytes written so far must leave before the socket goes.
      await new Promise<void>((resolve) => response.write(": cut\n\n", () => resolve()));
      response.destroy();
    },
    async finish(stopReason) {
      await begin();
      await closeBlock();
      const usage = { output_tokens: tokensOf(outputChars) };
      await emit("message_delta", { delta: { stop_reason: stopReason, stop_sequence: null }, usage });
      await emit("message_stop", {});
      response.end();
    },
  };
}

type Block = { type: "text"; text: string } | { type: "thinking"; thinking: string; signature: string } | ToolUse;
interface ToolUse {
  type: "tool_use";
  id: string;
  name: string;
  input: unknown;
}

/** Answers as one JSON body, the way the Messages API does without `stream`. */
export function createBodySink(response: ServerResponse, head: MessageHead): ReplySink {
  const blocks: Block[] = [];
  let outputChars = 0;
  return {
    async append(kind, text) {
      outputChars += text.length;
      const last = blocks.at(-1);
      if (kind === "text" && last?.type === "text") last.text += text;
      else if (kind === "thinking" && last?.type === "thinking") last.thinking += text;
      else if (kind === "text") blocks.push({ type: "text", text });
      else blocks.push({ type: "thinking", thinking: text, signature: SIGNATURE });
    },
    async callTool(id, name, input) {
      outputChars += JSON.stringify(input).length;
      blocks.push({ type: "tool_use", id, name, input });
    },
    async fail(error) {
      sendError(response, error);
    },
    async cut() {
      response.destroy();
    },
    async finish(stopReason) {
      sendJson(response, 200, messageOf(head, blocks, stopReason, tokensOf(outputChars)));
    },
  };
}

/** Sends an error of the API's shape; ends the response. */
export function sendError(response: ServerResponse, error: ApiError): void {
  const retryAfter = error.retryAfterSeconds;
  const headers = retryAfter === undefined ? {} : { "retry-after": String(retryAfter) };
  const body = { type: "error", error: { type: error.type, message: error.message } };
  sendJson(response, error.status, body, headers);
}

/** Sends a JSON body; ends the response. */
export function sendJson(
  response: ServerResponse,
  status: number,
  body: unknown,
  headers: Readonly<Record<string, string>> = {},
): void {
  response.writeHead(status, { "content-type": "application/json", ...headers });
  response.end(JSON.stringify(body));
}

/** The API counts about four characters a token. */
export function tokensOf(characters: number): number {
  return Math.max(1, Math.ceil(characters / 4));
}

function messageOf(head: MessageHead, content: readonly Block[], stopReason: string | null, outputTokens: number) {
  return {
    id: head.id,
    type: "message",
    role: "assistant",
    model: head.model,
    content,
    stop_reason: stopReason,
    stop_sequence: null,
    usage: {
      input_tokens: head.inputTokens,
      cache_creation_input_tokens: 0,
      cache_read_input_tokens: 0,
      output_tokens: outputTokens,
    },
  };
}
