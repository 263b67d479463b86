import type { Answered, IncomingRequest, Question } from "../client/index.ts";
import { reveal, type Terminal } from "./terminal.ts";

/** What to do when input ends before an answer: a `run` has nobody else, so it refuses; a session that is watched stays asked. */
export type AtEnd = "deny" | "leave";

const indent = (text: string): string => text.replaceAll(/^/gm, "    ");

/** The exact command or edit: each value of the input in full. */
function describe(input: Readonly<Record<string, unknown>>): string {
  const lines = Object.entries(input).map(([name, value]) => {
    const text = typeof value === "string" ? value : JSON.stringify(value, undefined, 2);
    return text.includes("\n") ? `${name}:\n${indent(text)}` : `${name}: ${text}`;
  });
  return indent(reveal(lines.join("\n")));
}

async function askPermission(terminal: Terminal, request: IncomingRequest): Promise<Answered | undefined> {
  terminal.line(`\n${reveal(request.toolName ?? request.subtype)} asks for permission:`, "yellow");
  terminal.line(describe(request.input));
  for (;;) {
    const line = await terminal.ask("allow? (yes, or no and why) > ", request.signal);
    if (line === undefined) return undefined;
    const [word = "", ...rest] = line.trim().split(/\s+/);
    // Only a whole word decides; an empty line or a typing slip asks again.
    if (word.toLowerCase() === "yes" && rest.length === 0) return request.allow();
    if (word.toLowerCase() === "no") return request.deny(rest.join(" ") || "The user refused.");
    terminal.line('Type "yes" to allow it, or "no" to refuse it (a reason may follow).');
  }
}

/** Numbers of options, or words of one's own; undefined = not understood. */
function choose(question: Question, line: string): string | string[] | undefined {
  const parts = line.split(",").map((part) => part.trim());
  if (!parts.every((part) => /^\d+$/.test(part))) return line.trim() === "" ? undefined : line.trim();
  const labels = parts.map((part) => question.options[Number(part) - 1]?.label);
  const known = labels.filter((label) => label !== undefined);
  if (known.length !== parts.length || (known.length > 1 && !question.multiSelect)) return undefined;
  return question.multiSelect ? known : known[0];
}

async function askQuestions(terminal: Terminal, request: IncomingRequest): Promise<Answered | undefined> {
  const answers: Record<string, string | string[]> = {};
  for (const question of request.questions) {
    terminal.line(`\n${reveal(question.question)}`, "yellow");
    for (const [index, { label, description }] of question.options.entries()) {
      terminal.line(reveal(`  ${index + 1}. ${label}${description === undefined ? "" : `: ${description}`}`));
    }
    const how = question.multiSelect ? "numbers with commas, or your own words" : "a number, or your own words";
    let chosen: string | string[] | undefined;
    while (chosen === undefined) {
      const line = await terminal.ask(`answer (${how}) > `, request.signal);
      if (line === undefined) return undefined;
      chosen = choose(question, line);
    }
    answers[question.question] = chosen;
  }
  return request.answer(answers);
}

async function answerOne(terminal: Terminal, request: IncomingRequest, atEnd: AtEnd): Promise<void> {
  const isQuestion = request.kind === "question" && request.questions.length > 0;
  let answered = await (isQuestion ? askQuestions(terminal, request) : askPermission(terminal, request));
  if (answered === undefined && atEnd === "deny") {
    terminal.line("\nNobody is here to answer, so it is refused.", "yellow");
    answered = await request.deny("Nobody is at the terminal to answer this.");
  }
  if (answered?.outcome === "already_answered")
    terminal.line(`Answered by ${answered.decidedBy ?? "somebody else"} before you.`);
  if (answered?.outcome === "settled") terminal.line("Nobody waits for this answer any more.");
}

/** Answers requests on the terminal, one after the other, in the order in which they came. One that is resolved elsewhere is let go. */
export function createPrompts(terminal: Terminal, atEnd: AtEnd): (request: IncomingRequest) => void {
  let last: Promise<void> = Promise.resolve();

  async function next(request: IncomingRequest): Promise<void> {
    if (request.signal.aborted) return;
    try {
      if (request.kind === "permission" || request.kind === "question" || request.kind === "plan") {
        await answerOne(terminal, request, atEnd);
      } else {
        terminal.line(`\nThe agent waits for a ${request.kind} answer, which this terminal cannot give.`, "yellow");
      }
    } catch (error) {
      if (!request.signal.aborted) throw error;
      terminal.line("\nThis request was resolved elsewhere.");
    }
  }
  return (request) => {
    last = last
      .then(() => next(request))
      .catch((error: unknown) => terminal.line(error instanceof Error ? error.message : String(error), "red"));
  };
}
