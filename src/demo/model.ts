import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { createServer, type Server, type ServerResponse } from "node:http";
import { type AnswerMessage, answerRequest } from "./answer.ts";
import { createChooser } from "./choose.ts";
import { fieldOf, textOf } from "./fields.ts";
import { playSteps, type ReplySink } from "./play.ts";
import { createRecorder, type RecordedRequest, type Recorder } from "./recorder.ts";
import { createBodySink, createStreamSink, sendError, tokensOf } from "./reply-sinks.ts";
import { parseScript, type Rule } from "./rules.ts";
import { answerSideRequest } from "./side-requests.ts";

export interface ScriptedModelOptions {
  /** Rules, or the JSON text of rules. docs/scripted-model.md describes them. */
  readonly script: readonly Rule[] | string;
  /** Default 0: any free port. */
  readonly port?: number;
  /** Default 127.0.0.1. */
  readonly host?: string;
  /** Characters per text delta, where a step does not say. Default 24. */
  readonly chunkChars?: number;
  /** Pause after each text delta, where a step does not say. Default 0. */
  readonly chunkDelayMs?: number;
  /** Recorded requests kept; older ones are forgotten. Default 1000. */
  readonly maxRequests?: number;
}

/** A running model. `await using` closes it. */
export interface ScriptedModel extends AsyncDisposable {
  /** Value for ANTHROPIC_BASE_URL. */
  readonly url: string;
  /** Every request received, oldest first. */
  readonly requests: readonly RecordedRequest[];
  /** Those that the script answered. */
  turns(): readonly RecordedRequest[];
  /** Calls the listener for each new request, before it is answered; returns a function that stops it. */
  onRequest: Recorder["onRequest"];
  /** Resolves with the first request that fits, past or future. @throws Error when none came in time */
  waitForRequest: Recorder["waitForRequest"];
  /** Lets replies pass the `hold` steps of this name, now and later. */
  release(name: string): void;
  /** Cuts open connections and frees the port. */
  close(): Promise<void>;
}

/** A real count of a long text would make the CLI compact the conversation. */
const MAX_REPORTED_INPUT_TOKENS = 2000;

/** Starts a Messages API server that answers from a script. @throws Error when the script is wrong or the port taken */
export async function startScriptedModel(options: ScriptedModelOptions): Promise<ScriptedModel> {
  const { script, port = 0, host = "127.0.0.1" } = options;
  const chooser = createChooser(typeof script === "string" ? parseScript(script) : script);
  const recorder = createRecorder(options.maxRequests ?? 1000);
  const gates = createGates();
  const answerMessage: AnswerMessage = async ({ request, side, response, signal }) => {
    const steps = side === undefined ? chooser.choose(request.conversation) : answerSideRequest(side);
    const { chunkChars = 24, chunkDelayMs = 0 } = options;
    const sink = createSink(request, response, signal);
    await playSteps(steps, sink, { chunkChars, chunkDelayMs, gate: gates.wait, newId, signal });
  };
  const server = createServer((request, response) => {
    // A client that goes away, or a script function that throws, must not end the server.
    answerRequest(request, response, recorder, answerMessage).catch((error: unknown) => {
      if (response.headersSent || response.destroyed) response.destroy();
      else sendError(response, { status: 500, type: "api_error", message: String(error) });
    });
  });
  // Closing idle connections would race with the CLI's next request on them.
  server.keepAliveTimeout = 0;
  await listen(server, port, host);
  const close = (): Promise<void> => closeServer(server);
  return {
    url: urlOf(server),
    requests: recorder.requests,
    turns: () => recorder.requests.filter((request) => request.kind === "turn"),
    onRequest: recorder.onRequest,
    waitForRequest: recorder.waitForRequest,
    release: gates.release,
    close,
    [Symbol.asyncDispose]: close,
  };
}

function createSink(request: RecordedRequest, response: ServerResponse, signal: AbortSignal): ReplySink {
  const head = {
    id: newId("msg"),
    model: textOf(fieldOf(request.body, "model")) || "scripted",
    inputTokens: Math.min(tokensOf(request.bodyBytes), MAX_REPORTED_INPUT_TOKENS),
    signal,
  };
  const streams = fieldOf(request.body, "stream") === true;
  return streams ? createStreamSink(response, head) : createBodySink(response, head);
}

/** Unique over restarts, because a resumed session sends old ids back. */
function newId(prefix: string): string {
  return `${prefix}_${randomUUID().replaceAll("-", "").slice(0, 24)}`;
}

function createGates() {
  const gates = new Map<string, PromiseWithResolvers<void>>();
  const gate = (name: string): PromiseWithResolvers<void> => {
    const made = gates.get(name) ?? Promise.withResolvers<void>();
    gates.set(name, made);
    return made;
  };
  return {
    wait: (name: string): Promise<void> => gate(name).promise,
    release: (name: string): void => gate(name).resolve(),
  };
}

async function listen(server: Server, port: number, host: string): Promise<void> {
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  server.once("error", reject);
  server.listen(port, host, resolve);
  await promise;
  server.off("error", reject);
}

async function closeServer(server: Server): Promise<void> {
  if (!server.listening) return;
  const closed = once(server, "close");
  server.close();
  server.closeAllConnections();
  await closed;
}

function urlOf(server: Server): string {
  const address = server.address();
  if (address === null || typeof address === "string") throw new Error("the model server has no TCP address");
  const host = address.family === "IPv6" ? `[${address.address}]` : address.address;
  return `http://${host}:${address.port}`;
}
