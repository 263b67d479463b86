import { setTimeout as sleep } from "node:timers/promises";
import type { Step } from "./rules.ts";

/** An error answer of the Messages API. */
export interface ApiError {
  readonly status: number;
  readonly type: string;
  readonly message: string;
  readonly retryAfterSeconds?: number | undefined;
}

/** Where the steps of a reply go: an event stream or one JSON body. Each method resolves when the peer can take more. */
export interface ReplySink {
  append(kind: "text" | "thinking", text: string): Promise<void>;
  callTool(id: string, name: string, input: unknown): Promise<void>;
  /** Only before anything was written does an HTTP status say it; later it becomes an error event. */
  fail(error: ApiError): Promise<void>;
  /** Ends the connection in the middle of the reply. */
  cut(): Promise<void>;
  finish(stopReason: string): Promise<void>;
}

export interface PlayOptions {
  /** Characters per text delta. */
  readonly chunkChars: number;
  readonly chunkDelayMs: number;
  /** Resolves when the named gate is released. */
  readonly gate: (name: string) => Promise<void>;
  readonly newId: (prefix: string) => string;
  /** Aborts when the client has gone. */
  readonly signal: AbortSignal;
}

const FILL_CHUNK_CHARS = 16_384;
const FILL_LINE = "0123456789abcdefghijklmnopqrstuvwxyz ABCDEFGHIJKLMNOPQRSTUVWXY\n";

const ERROR_TYPES: Readonly<Record<number, string>> = {
  400: "invalid_request_error",
  401: "authentication_error",
  403: "permission_error",
  404: "not_found_error",
  413: "request_too_large",
  429: "rate_limit_error",
  500: "api_error",
  529: "overloaded_error",
};

/** The error type that the Messages API gives with a status. */
export function errorTypeOf(status: number): string {
  return ERROR_TYPES[status] ?? (status < 500 ? "invalid_request_error" : "api_error");
}

/** Does the steps in order; rejects with an AbortError when the client goes away first. */
export async function playSteps(steps: readonly Step[], sink: ReplySink, options: PlayOptions): Promise<void> {
  let stopReason: string | undefined;
  for (const step of steps) {
    if (typeof step === "object" && "stopReason" in step) stopReason = step.stopReason;
    else if (await playStep(step, sink, options)) return;
  }
  const callsTool = steps.some((step) => typeof step === "object" && "tool" in step);
  await sink.finish(stopReason ?? (callsTool ? "tool_use" : "end_turn"));
}

/** True when the step ends the reply. */
async function playStep(step: Step, sink: ReplySink, options: PlayOptions): Promise<boolean> {
  if (typeof step === "string") {
    await appendChunks(sink, "text", step, options.chunkChars, options.chunkDelayMs, options.signal);
  } else if ("text" in step) {
    const { chunkChars = options.chunkChars, chunkDelayMs = options.chunkDelayMs } = step;
    await appendChunks(sink, "text", step.text, chunkChars, chunkDelayMs, options.signal);
  } else if ("thinking" in step) {
    await appendChunks(sink, "thinking", step.thinking, options.chunkChars, options.chunkDelayMs, options.signal);
  } else if ("fillBytes" in step) {
    const text = FILL_LINE.repeat(Math.ceil(step.fillBytes / FILL_LINE.length)).slice(0, step.fillBytes);
    await appendChunks(sink, "text", text, FILL_CHUNK_CHARS, 0, options.signal);
  } else if ("tool" in step) {
    await sink.callTool(step.id ?? options.newId("toolu"), step.tool, step.input);
  } else if ("pauseMs" in step) {
    await sleep(step.pauseMs, undefined, { signal: options.signal });
  } else if ("hold" in step) {
    await Promise.race([options.gate(step.hold), aborted(options.signal)]);
  } else if ("stall" in step) {
    await aborted(options.signal);
  } else {
    return playEnd(step, sink);
  }
  return false;
}

async function playEnd(step: Exclude<Step, string>, sink: ReplySink): Promise<boolean> {
  if ("cut" in step) {
    await sink.cut();
    return true;
  }
  if ("streamError" in step) {
    await sink.fail({ status: 500, type: step.streamError, message: step.message ?? "scripted error" });
    return true;
  }
  if ("status" in step) {
    const { status, errorType = errorTypeOf(status), message = "scripted error", retryAfterSeconds } = step;
    await sink.fail({ status, type: errorType, message, retryAfterSeconds });
    return true;
  }
  return false;
}

async function appendChunks(
  sink: ReplySink,
  kind: "text" | "thinking",
  text: string,
  chunkChars: number,
  chunkDelayMs: number,
  signal: AbortSignal,
): Promise<void> {
  for (const chunk of chunksOf(text, chunkChars)) {
    signal.throwIfAborted();
    await sink.append(kind, chunk);
    if (chunkDelayMs > 0) await sleep(chunkDelayMs, undefined, { signal });
  }
}

/** Pieces of about `size` UTF-16 units; a surrogate pair is never split, for it would arrive as two broken characters. */
export function* chunksOf(text: string, size: number): Generator<string> {
  for (let start = 0; start < text.length; ) {
    let end = Math.min(start + size, text.length);
    const last = text.charCodeAt(end - 1);
    if (end < text.length && last >= 0xd800 && last <= 0xdbff) end += 1;
    yield text.slice(start, end);
    start = end;
  }
}

/** Never resolves; rejects once the signal aborts. */
function aborted(signal: AbortSignal): Promise<never> {
  return new Promise((_, reject) => {
    if (signal.aborted) reject(signal.reason);
    else signal.addEventListener("abort", () => reject(signal.reason), { once: true });
  });
}
