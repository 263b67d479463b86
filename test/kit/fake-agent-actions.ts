import { spawn } from "node:child_process";
import { randomUUID } from "node:crypto";
import { existsSync, writeSync } from "node:fs";
import { setTimeout as delay } from "node:timers/promises";
import {
  assistantMessage,
  type Conversation,
  emit,
  emitDelta,
  emitInit,
  emitResult,
  endMessage,
  startMessage,
} from "./fake-agent-turn.ts";
import { type Message, writeBytes, writeLine } from "./fake-agent-wire.ts";

/** What a turn may use besides stdout. */
export interface TurnTools {
  readonly conversation: Conversation;
  /** Aborts when the host interrupts. */
  readonly signal: AbortSignal;
  /** Sends a control_request and resolves with the `response` of its answer. */
  ask(request: Message): Promise<Message>;
  /** Sends a control_request and withdraws it. */
  askAndCancel(request: Message): void;
  /** How many control_response lines have come on stdin. */
  answersSeen(): number;
}

type Action = (tools: TurnTools, words: readonly string[], text: string) => Promise<void> | void;

/** The turn that a user's text asks for (listed in fake-agent-spec.ts). Ends with its result, except where it dies or stalls. */
export async function runTurn(tools: TurnTools, text: string): Promise<void> {
  const [name = "", ...words] = text.split(" ");
  const action = Object.hasOwn(ACTIONS, name) ? ACTIONS[name] : undefined;
  if (action === undefined) return stream(tools, [`echo: `, text.slice(0, 3), text.slice(3)], 0);
  await action(tools, words, text.slice(name.length + 1));
}

const ACTIONS: Readonly<Record<string, Action>> = {
  "!stream": (tools, [count, bytes, pauseMs]) =>
    stream(tools, Array(Number(count)).fill("x".repeat(Number(bytes))), Number(pauseMs)),
  "!flood": ({ conversation }, [megabytes]) => {
    const piece = "y".repeat(64 * 1024);
    for (let left = Number(megabytes) * 16; left > 0; left--)
      emitDelta({ ...conversation, showsPreviews: true }, piece);
    emitResult(conversation, { result: "flooded" });
  },
  "!line": ({ conversation }, [bytes]) => {
    const empty = JSON.stringify(assistantMessage("")).length;
    writeLine(JSON.stringify(assistantMessage("z".repeat(Number(bytes) - empty))));
    emitResult(conversation, { result: "long" });
  },
  "!bytewise": async ({ conversation }, _, text) => {
    for (const byte of Buffer.from(`${JSON.stringify(assistantMessage(text))}\n`)) {
      writeBytes(Uint8Array.of(byte));
      await new Promise((resolve) => setImmediate(resolve));
    }
    emitResult(conversation, { result: text });
  },
  "!until": async ({ conversation, signal }, [name = "", bytes, pauseMs]) => {
    const pieces: string[] = [];
    startMessage(conversation);
    while (!existsSync(name)) {
      const piece = `${pieces.length} `.padEnd(Number(bytes), "u");
      pieces.push(piece);
      emitDelta(conversation, piece);
      if (pieces.length % 10 === 0) emit(conversation, { type: "tool_progress", elapsed_time_seconds: pieces.length });
      await delay(Number(pauseMs), undefined, { signal });
    }
    endMessage(conversation, pieces.join(""));
    emitResult(conversation, { result: pieces.join("") });
  },
  "!lines": async ({ conversation, signal }, [count, atOnce, pauseMs]) => {
    for (let n = 1; n <= Number(count); n += 1) {
      emit(conversation, { type: "tool_progress", elapsed_time_seconds: n });
      if (n % Number(atOnce) === 0) await delay(Number(pauseMs), undefined, { signal });
    }
    emitResult(conversation, { result: "lines" });
  },
  "!raw": ({ conversation }, _, text) => {
    const lines: string[] = JSON.parse(text);
    for (const line of lines) writeLine(line);
    emitResult(conversation, { result: "raw" });
  },
  "!invalid-utf8": raw(Buffer.from([...Buffer.from('{"type":"assistant","text":"'), 0xff, ...Buffer.from('"}\n')])),
  "!noise": raw(Buffer.from("just words\n")),
  "!cr": raw(Buffer.from('{"type":"assistant","text":"carriage return follows"}\r\n')),
  "!inner-cr": raw(Buffer.from('{"type":"assistant",\r"text":"white space"}\n')),
  "!stderr": ({ conversation }, _, text) => {
    writeSync(2, `${text}\n`);
    emitResult(conversation, { result: "said" });
  },
  "!dump": (tools) =>
    stream(tools, [JSON.stringify({ env: process.env, argv: process.argv, cwd: process.cwd(), pid: process.pid })], 0),
  "!ask": (tools) => answerWith(tools, [permission("touch one")]),
  "!ask2": (tools) => answerWith(tools, [permission("touch one"), permission("touch two")]),
  "!question": (tools) => answerWith(tools, [question()]),
  "!request": async (tools, _, text) => {
    const answer = await Promise.race([tools.ask(JSON.parse(text)), aborted(tools.signal)]);
    await stream(tools, [JSON.stringify([answer])], 0);
  },
  "!answers": (tools) => stream(tools, [String(tools.answersSeen())], 0),
  "!cancel": (tools) => {
    tools.askAndCancel(permission("touch one"));
    emitResult(tools.conversation, { result: "withdrawn" });
  },
  "!background": async (tools) => {
    await stream(tools, ["working behind"], 0);
    tools.conversation.userUuids = [];
    emitInit(tools.conversation);
    endMessage(tools.conversation, "background done");
    emitResult(tools.conversation, { result: "background done", origin: { kind: "task-notification" } });
  },
  "!error": ({ conversation }) => {
    endMessage(conversation, "API Error");
    emitResult(conversation, { is_error: true, result: "API Error", api_error_status: 529 });
  },
  "!stall": async ({ conversation, signal }) => {
    startMessage(conversation);
    emitDelta(conversation, "half a sen");
    await aborted(signal);
  },
  "!die": ({ conversation }, [code]) => {
    startMessage(conversation);
    emitDelta(conversation, "half a sen");
    process.exit(Number(code));
  },
  "!kill": ({ conversation }) => {
    startMessage(conversation);
    emitDelta(conversation, "half a sen");
    process.kill(process.pid, "SIGKILL");
  },
  "!child": (tools) => stream(tools, [String(sleeper(false))], 0),
  "!setsid": (tools) => stream(tools, [String(sleeper(true))], 0),
  "/clear": ({ conversation }) => {
    conversation.sessionId = randomUUID();
    emitInit(conversation);
    emitResult(conversation, { result: "" });
  },
};

async function stream({ conversation, signal }: TurnTools, pieces: readonly string[], pauseMs: number): Promise<void> {
  startMessage(conversation);
  for (const piece of pieces) {
    emitDelta(conversation, piece);
    if (pauseMs > 0) await delay(pauseMs, undefined, { signal });
    // Lets stdin be read, as the CLI would.
    else await new Promise((resolve) => setImmediate(resolve));
    signal.throwIfAborted();
  }
  endMessage(conversation, pieces.join(""));
  emitResult(conversation, { result: pieces.join("") });
}

function raw(bytes: Uint8Array): Action {
  return ({ conversation }) => {
    writeBytes(bytes);
    emitResult(conversation, { result: "raw" });
  };
}

async function answerWith(tools: TurnTools, requests: readonly Message[]): Promise<void> {
  for (const { tool_name, tool_use_id, input } of requests) {
    const content = [{ type: "tool_use", id: tool_use_id, name: tool_name, input }];
    const message = { id: "msg_fake", type: "message", role: "assistant", model: "fake-model", content };
    emit(tools.conversation, { type: "assistant", message, parent_tool_use_id: null });
  }
  const answers = await Promise.race([Promise.all(requests.map(tools.ask)), aborted(tools.signal)]);
  await stream(tools, [JSON.stringify(answers)], 0);
}

function permission(command: string): Message {
  const input = { command, description: "make a file" };
  const suggestion = {
    type: "addRules",
    rules: [{ toolName: "Bash", ruleContent: command }],
    behavior: "allow",
    destination: "localSettings",
  };
  return {
    subtype: "can_use_tool",
    tool_name: "Bash",
    display_name: "Bash",
    input,
    tool_use_id: `toolu_${randomUUID()}`,
    permission_suggestions: [suggestion],
  };
}

function question(): Message {
  const options = [
    { label: "Red", description: "warm" },
    { label: "Blue", description: "cold" },
  ];
  const input = { questions: [{ question: "Which colour?", header: "Colour", options, multiSelect: false }] };
  const rest = { display_name: "AskUserQuestion", requires_user_interaction: true };
  return {
    subtype: "can_use_tool",
    tool_name: "AskUserQuestion",
    input,
    tool_use_id: `toolu_${randomUUID()}`,
    ...rest,
  };
}

function sleeper(ownSession: boolean): number | undefined {
  // Keeps stdout open, as a background command of the CLI may.
  const child = spawn("sleep", ["300"], { detached: ownSession, stdio: ["ignore", "inherit", "inherit"] });
  child.unref();
  return child.pid;
}

function aborted(signal: AbortSignal): Promise<never> {
  return new Promise((_, reject) => {
    if (signal.aborted) reject(signal.reason);
    signal.addEventListener("abort", () => reject(signal.reason));
  });
}
