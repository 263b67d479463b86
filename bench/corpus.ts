import { writeFileSync } from "node:fs";

/** What the agent says, prepared once: a file of lines that it repeats. */
export interface Corpus {
  readonly path: string;
  /** Lines in the file. */
  readonly lines: number;
  /** Mean bytes of a line, newline included. */
  readonly meanBytes: number;
  /** How many of the first `count` lines that the agent writes are previews (`stream_event`), and how many are not. */
  count(count: number): { readonly previews: number; readonly durable: number };
}

const SESSION = "8f625466-e17c-4dae-8b1e-f4716a432b00";
const MESSAGES = 500;
const DELTAS_PER_MESSAGE = 18;
const BIG_LINE_BYTES = 1024 * 1024;
/** One assistant or user line in so many is big, with `--big`. */
const BIG_EVERY = 400;
const WORDS = 'the server keeps order while a reader waits, então wird 日本 gelesen; "quoted" and back\\slash\n';

/** A small fixed sequence of pseudo-random numbers in 0..1: every run has the same corpus. */
function randomNumbers(): () => number {
  let state = 20_261_130;
  return () => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return state / 2 ** 32;
  };
}

function textOf(characters: number, from: number): string {
  const start = Math.floor(from * WORDS.length);
  return (WORDS.slice(start) + WORDS.repeat(Math.ceil(characters / WORDS.length))).slice(0, characters);
}

/** The lines of one API message and its tool's answer, in the CLI's order and of its sizes (about 270 bytes a delta, 2 to 20 KB the rest). */
function messageLines(index: number, random: () => number, isBig: boolean): object[] {
  const uuid = (): string =>
    `b0aedde6-1784-4ea9-8ebd-${Math.floor(random() * 2 ** 44)
      .toString(16)
      .padStart(12, "0")}`;
  const id = `msg_bench_${index}`;
  const preview = (event: object): object => ({
    type: "stream_event",
    event,
    session_id: SESSION,
    parent_tool_use_id: null,
    uuid: uuid(),
    api_message_id: id,
  });
  const size = isBig ? BIG_LINE_BYTES : 2_000 * 10 ** random();
  const message = { id, type: "message", role: "assistant", model: "claude-opus-5-5" };
  const stamp = { parent_tool_use_id: null, session_id: SESSION, uuid: uuid(), timestamp: "2026-11-30T19:36:04.605Z" };
  const deltas = Array.from({ length: DELTAS_PER_MESSAGE }, () =>
    preview({
      type: "content_block_delta",
      index: 0,
      delta: { type: "text_delta", text: textOf(4 + random() * 32, random()) },
    }),
  );
  const content = [{ type: "text", text: textOf(size, random()) }];
  const asksTool = index % 4 === 0;
  return [
    preview({
      type: "message_start",
      message: { ...message, content: [], stop_reason: null, usage: { input_tokens: 10 } },
    }),
    preview({ type: "content_block_start", index: 0, content_block: { type: "text", text: "" } }),
    ...deltas,
    { type: "assistant", message: { ...message, content, stop_reason: null, usage: { input_tokens: 10 } }, ...stamp },
    preview({ type: "content_block_stop", index: 0 }),
    preview({
      type: "message_delta",
      delta: { stop_reason: "end_turn", stop_sequence: null },
      usage: { output_tokens: 12 },
    }),
    preview({ type: "message_stop" }),
    asksTool
      ? {
          type: "user",
          message: { role: "user", content: [{ type: "tool_result", tool_use_id: id, content }] },
          ...stamp,
        }
      : { type: "system", subtype: "status", status: "requesting", session_id: SESSION, uuid: uuid() },
  ];
}

/** Writes the corpus: about 92 % previews, mean about 700 bytes; `big` adds lines of a megabyte. */
export function writeCorpus(path: string, { big }: { readonly big: boolean }): Corpus {
  const random = randomNumbers();
  const messages = Array.from({ length: MESSAGES }, (_, index) =>
    messageLines(index, random, big && index % BIG_EVERY === 7),
  ).flat();
  const text = messages.map((message) => `${JSON.stringify(message)}\n`).join("");
  writeFileSync(path, text);
  const isPreview = messages.map((message) => "type" in message && message.type === "stream_event");
  return {
    path,
    lines: messages.length,
    meanBytes: Buffer.byteLength(text) / messages.length,
    count(count) {
      const whole = Math.floor(count / messages.length);
      const inFile = isPreview.filter(Boolean).length;
      const rest = isPreview.slice(0, count % messages.length).filter(Boolean).length;
      const previews = whole * inFile + rest;
      return { previews, durable: count - previews };
    },
  };
}
