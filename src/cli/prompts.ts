import type { Answered, IncomingRequest, Question } from "../client/index.ts";
import { describeConditions, describeRequest } from "./describe.ts";
import { reveal, type Terminal } from "./terminal.ts";

const ANSWERABLE: readonly IncomingRequest["kind"][] = ["permission", "question", "plan", "elicitation"];

/** What to do when input ends before an answer: a `run` has nobody else, so it refuses; a session that is watched stays asked. */
export type AtEnd = "deny" | "leave";

async function askPermission(terminal: Terminal, request: IncomingRequest): Promise<Answered | undefined> {
  terminal.line(`\n${reveal(request.toolName ?? request.subtype)} asks for permission:`, "yellow");
  terminal.line(describeRequest(request));
  for (const line of describeConditions(request)) terminal.line(line, "dim");
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

/** A form of an MCP server: a JSON object with what it wants to know, or a refusal. */
async function askElicitation(terminal: Terminal, request: IncomingRequest): Promise<Answered | undefined> {
  terminal.line(`\n${reveal(String(request.request["mcp_server_name"] ?? "A server"))} asks:`, "yellow");
  terminal.line(reveal(String(request.request["message"] ?? "")));
  terminal.line(reveal(JSON.stringify(request.request["requested_schema"] ?? {}, undefined, 2)), "dim");
  for (;;) {
    const line = await terminal.ask('answer (a JSON object, or "decline") > ', request.signal);
    if (line === undefined) return undefined;
    if (line.trim().toLowerCase() === "decline") return request.respond({ action: "decline" });
    const content = parseObject(line);
    if (content !== undefined) return request.respond({ action: "accept", content });
    terminal.line('Type a JSON object such as {"name":"value"}, or "decline".');
  }
}

function parseObject(text: string): Readonly<Record<string, unknown>> | undefined {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === "object" && value !== null && !Array.isArray(value) ? { ...value } : undefined;
  } catch {
    return undefined;
  }
}

async function ask(terminal: Terminal, request: IncomingRequest): Promise<Answered | undefined> {
  if (request.kind === "elicitation") return askElicitation(terminal, request);
  if (request.kind === "question" && request.questions.length > 0) return askQuestions(terminal, request);
  return askPermission(terminal, request);
}

async function refuse(request: IncomingRequest): Promise<Answered> {
  if (request.kind === "elicitation") return request.respond({ action: "decline" });
  return request.deny("Nobody is at the terminal to answer this.");
}

async function answerOne(terminal: Terminal, request: IncomingRequest, atEnd: AtEnd): Promise<void> {
  let answered = await ask(terminal, request);
  if (answered === undefined && atEnd === "deny") {
    terminal.line("\nNobody is here to answer, so it is refused.", "yellow");
    answered = await refuse(request);
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
      if (ANSWERABLE.includes(request.kind)) {
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
