import { randomUUID } from "node:crypto";
import { type Conversation, emit } from "./fake-agent-turn.ts";
import { type Message, part, text, writeLine } from "./fake-agent-wire.ts";

export interface Control {
  /** A stdin line that is not a user message. */
  take(message: Message): void;
  ask(request: Message): Promise<Message>;
  askAndCancel(request: Message): void;
  /** How many control_response lines have come on stdin. */
  answersSeen(): number;
  /** The accept receipt of a user message. */
  noteQueued(uuid: string): void;
  /** A new turn: the signal that an interrupt aborts. */
  beginTurn(): AbortSignal;
  endTurn(): void;
  /** EOF on stdin: open requests fail, as the CLI's do. */
  streamClosed(): void;
}

interface ControlOptions {
  readonly conversation: Conversation;
  readonly answersInitialize: boolean;
  queuedUuids(): string[];
}

/** The control channel in both directions. */
export function createControl(options: ControlOptions): Control {
  const open = new Map<string, (answer: Message) => void>();
  let turn: AbortController | undefined;
  let answers = 0;

  function answer(requestId: string, fields: Message): void {
    writeLine(JSON.stringify({ type: "control_response", response: { ...fields, request_id: requestId } }));
  }

  function cancelOpen(): void {
    for (const requestId of open.keys()) cancel(requestId);
    open.clear();
  }

  function serve(requestId: string, request: Message): void {
    const subtype = text(request, "subtype");
    const succeed = (response?: Message) => answer(requestId, { subtype: "success", ...(response && { response }) });
    switch (subtype) {
      case "initialize":
        if (options.answersInitialize) succeed(initializeAnswer());
        return;
      case "interrupt":
        // The order of the CLI: withdrawn prompts, the answer, then what ends the turn.
        cancelOpen();
        succeed({ still_queued: options.queuedUuids() });
        turn?.abort(new Error("interrupted"));
        return;
      case "set_model":
        return succeed({ model: request["model"] ?? "default" });
      case "set_permission_mode":
        succeed({ mode: request["mode"] });
        emit(options.conversation, {
          type: "system",
          subtype: "status",
          status: null,
          permissionMode: request["mode"],
        });
        return;
      case "unsupported":
        return answer(requestId, { subtype: "error", error: "Unsupported control request subtype: unsupported" });
      case "end_session":
        succeed();
        return process.exit(0);
      default:
        return succeed({});
    }
  }

  return {
    take(message) {
      if (message["type"] === "control_request") serve(text(message, "request_id"), part(message, "request"));
      if (message["type"] === "control_response") {
        answers += 1;
        const response = part(message, "response");
        const requestId = text(response, "request_id");
        open.get(requestId)?.(response);
        open.delete(requestId);
      }
    },
    ask: (request) => new Promise((resolve) => open.set(send(request), resolve)),
    askAndCancel: (request) => cancel(send(request)),
    answersSeen: () => answers,
    noteQueued(uuid) {
      if (uuid !== "") emit(options.conversation, { type: "command_lifecycle", command_uuid: uuid, state: "queued" });
    },
    beginTurn() {
      turn = new AbortController();
      return turn.signal;
    },
    endTurn() {
      turn = undefined;
    },
    streamClosed() {
      for (const resolve of open.values()) resolve({ subtype: "error", error: "Tool permission stream closed" });
      open.clear();
    },
  };
}

function send(request: Message): string {
  const requestId = randomUUID();
  writeLine(JSON.stringify({ type: "control_request", request_id: requestId, request }));
  return requestId;
}

function cancel(requestId: string): void {
  writeLine(JSON.stringify({ type: "control_cancel_request", request_id: requestId }));
}

function initializeAnswer(): Message {
  return {
    commands: [{ name: "clear", description: "start anew", argumentHint: "" }],
    agents: [],
    output_style: "default",
    available_output_styles: ["default"],
    models: [{ value: "default", displayName: "Fake", description: "no model" }],
    account: { tokenSource: "none", apiKeySource: "none" },
    pid: process.pid,
    claude_code_version: "9.9.9",
    current_permission_mode: "default",
    session_state: "idle",
    capabilities: [],
  };
}
