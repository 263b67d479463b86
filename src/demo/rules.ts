import { readFileSync } from "node:fs";
import { z } from "zod";
import type { Conversation } from "./conversation.ts";

/** A string is contained literally (case matters); a RegExp or its JSON form is searched. */
export type Pattern = string | RegExp | { readonly regex: string; readonly flags?: string | undefined };

/** One thing a reply does; the steps of a reply happen in order. docs/scripted-model.md explains each. */
export type Step =
  | string
  | { readonly text: string; readonly chunkChars?: number | undefined; readonly chunkDelayMs?: number | undefined }
  | { readonly thinking: string }
  | { readonly tool: string; readonly input: Readonly<Record<string, unknown>>; readonly id?: string | undefined }
  | { readonly fillBytes: number }
  | { readonly pauseMs: number }
  | { readonly hold: string }
  | { readonly stall: true }
  | { readonly cut: true }
  | { readonly streamError: string; readonly message?: string | undefined }
  | {
      readonly status: number;
      readonly errorType?: string | undefined;
      readonly message?: string | undefined;
      readonly retryAfterSeconds?: number | undefined;
    }
  | { readonly stopReason: "end_turn" | "max_tokens" | "refusal" | "stop_sequence" | "pause_turn" };

export type Reply = Step | readonly Step[];

/** The first rule whose conditions all hold answers a request. */
export interface Rule {
  /** The newest text the user typed (or, in a subagent, its task prompt). Absent: any. */
  readonly text?: Pattern | undefined;
  /** Absent: both. */
  readonly scope?: "main" | "subagent" | undefined;
  /** Tool rounds since that text. Absent: 0, or any round when `tool`, `isError` or `result` is given. */
  readonly round?: number | "any" | undefined;
  /** Name of a tool whose result has just come back. */
  readonly tool?: string | undefined;
  readonly isError?: boolean | undefined;
  /** Text of a tool result that has just come back. */
  readonly result?: Pattern | undefined;
  /** The end of a background task has just been reported; a pattern is searched in its summary and result. */
  readonly notification?: true | Pattern | undefined;
  /** The rule answers at most this many requests of one user turn; later ones fall through to the next rule. */
  readonly times?: number | undefined;
  /** A function is for scripts written in TypeScript; it sees the conversation and its answer is not templated. */
  readonly reply: Reply | ((conversation: Conversation) => Reply);
}

const pattern = z.union([
  z.string(),
  z.strictObject({ regex: z.string(), flags: z.string().optional() }).superRefine((value, context) => {
    try {
      new RegExp(value.regex, value.flags);
    } catch (error) {
      context.addIssue({ code: "custom", message: String(error) });
    }
  }),
]);

const count = z.number().int().nonnegative();

const step = z.union([
  z.string(),
  z.strictObject({ text: z.string(), chunkChars: count.min(1).optional(), chunkDelayMs: count.optional() }),
  z.strictObject({ thinking: z.string() }),
  z.strictObject({ tool: z.string(), input: z.record(z.string(), z.unknown()), id: z.string().optional() }),
  z.strictObject({ fillBytes: count }),
  z.strictObject({ pauseMs: count }),
  z.strictObject({ hold: z.string() }),
  z.strictObject({ stall: z.literal(true) }),
  z.strictObject({ cut: z.literal(true) }),
  z.strictObject({ streamError: z.string(), message: z.string().optional() }),
  z.strictObject({
    status: z.number().int().min(400).max(599),
    errorType: z.string().optional(),
    message: z.string().optional(),
    retryAfterSeconds: z.number().nonnegative().optional(),
  }),
  z.strictObject({ stopReason: z.enum(["end_turn", "max_tokens", "refusal", "stop_sequence", "pause_turn"]) }),
]);

const script = z.array(
  z.strictObject({
    text: pattern.optional(),
    scope: z.enum(["main", "subagent"]).optional(),
    round: z.union([count, z.literal("any")]).optional(),
    tool: z.string().optional(),
    isError: z.boolean().optional(),
    result: pattern.optional(),
    notification: z.union([z.literal(true), pattern]).optional(),
    times: count.min(1).optional(),
    reply: z.union([step, z.array(step)]),
  }),
);

/** Reads a script from JSON text. @throws Error naming the first wrong entry */
export function parseScript(text: string): readonly Rule[] {
  const parsed = script.safeParse(JSON.parse(text));
  if (!parsed.success) throw new Error(`not a model script: ${z.prettifyError(parsed.error)}`);
  return parsed.data;
}

/** Reads a script from a .json file. @throws Error when the file is missing or not a script */
export function loadScript(path: string): readonly Rule[] {
  return parseScript(readFileSync(path, "utf8"));
}
