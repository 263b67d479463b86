import type { RequestKind } from "../../protocol/events.ts";
import type { PolicyQuestion, PolicyRule } from "../../protocol/policy.ts";
import { type Certainty, fold } from "./certainty.ts";
import { type CommandLine, matchesCommand, readCommand } from "./command-pattern.ts";
import { matchesGlob } from "./glob.ts";
import { matchesPaths, type ToolPaths, toolPaths } from "./tool-paths.ts";
import { inVersions } from "./versions.ts";

/** Longer texts are not searched. In characters. */
const LONGEST_TEXT_CHARS = 1024 * 1024;
/** A Bash input field that takes the walls away: a rule about commands does not speak of it. */
const UNSANDBOXED = "dangerouslyDisableSandbox";

/** A question, and what rules have to know of it: each worked out once, and only when a rule asks. */
export interface Facts {
  readonly question: PolicyQuestion;
  readonly kind: RequestKind;
  command(): CommandLine | undefined;
  paths(): ToolPaths;
  folded(field: string): string;
}

function once<T>(make: () => T): () => T {
  let made: { readonly value: T } | undefined;
  return () => {
    made ??= { value: make() };
    return made.value;
  };
}

/** Tools whose answer is not a plain yes or no, whatever they are said to be. */
function kindOf({ kind, tool_name }: PolicyQuestion): RequestKind {
  if (kind !== "permission") return kind;
  if (tool_name === "AskUserQuestion") return "question";
  return tool_name === "ExitPlanMode" ? "plan" : kind;
}

const textOf = (value: unknown): string => (typeof value === "string" ? value : (JSON.stringify(value) ?? ""));

export function factsOf(question: PolicyQuestion): Facts {
  const { input } = question;
  const folded = new Map<string, string>();
  return {
    question,
    kind: kindOf(question),
    command: once(() => (typeof input["command"] === "string" ? readCommand(input["command"]) : undefined)),
    paths: once(() => toolPaths(question)),
    folded(field) {
      const text = folded.get(field) ?? fold(textOf(input[field]));
      folded.set(field, text);
      return text;
    },
  };
}

/** Whether all conditions of the rule hold: surely for an allow, possibly for a deny or ask. */
export function matchesRule(rule: PolicyRule, facts: Facts): boolean {
  const { question } = facts;
  const certainty: Certainty = rule.effect === "allow" ? "must" : "may";
  return (
    kindMatches(rule, facts) &&
    (rule.tools === undefined || rule.tools.some((glob) => matchesGlob(glob, question.tool_name))) &&
    (rule.modes === undefined || (question.mode === null ? certainty === "may" : rule.modes.includes(question.mode))) &&
    (rule.versions === undefined || inVersions(rule.versions, question.version, certainty)) &&
    inputMatches(rule, facts, certainty) &&
    (rule.path === undefined || matchesPaths(rule.path, facts.paths(), question.cwd, certainty)) &&
    (rule.command === undefined || commandMatches(rule, rule.command, facts, certainty))
  );
}

/** Hooks and tools of a client are the session's own wiring, no question to people. */
export const isWiring = (kind: RequestKind): boolean => kind === "hook" || kind === "mcp";

function kindMatches({ effect, kinds }: PolicyRule, { kind, question }: Facts): boolean {
  if (isWiring(kind)) return false;
  if (effect === "allow") {
    // Nobody can invent the answer to anything else, and what the agent keeps for people stays with them.
    if (question.requires_person === true || (kind !== "permission" && kind !== "plan")) return false;
    return (kinds ?? ["permission"]).includes(kind);
  }
  return kinds === undefined || kinds.includes(kind);
}

function commandMatches(rule: PolicyRule, patterns: readonly string[], facts: Facts, certainty: Certainty): boolean {
  const { tool_name, input } = facts.question;
  if (tool_name !== "Bash") return false;
  const line = facts.command();
  if (line === undefined) return certainty === "may";
  const unsandboxed = input[UNSANDBOXED] !== undefined && input[UNSANDBOXED] !== false;
  if (certainty === "must" && unsandboxed && rule.input?.[UNSANDBOXED] === undefined) return false;
  return matchesCommand(patterns, line, certainty);
}

function inputMatches({ input: globs = {} }: PolicyRule, facts: Facts, certainty: Certainty): boolean {
  return Object.entries(globs).every(([field, glob]) => {
    const { input } = facts.question;
    if (!Object.hasOwn(input, field)) return false;
    const value = input[field];
    if (certainty === "must") {
      if (typeof value !== "string" && typeof value !== "number" && typeof value !== "boolean") return false;
      const text = String(value);
      return text.length <= LONGEST_TEXT_CHARS && !/[\p{Cc}\p{Cf}]/u.test(text) && matchesGlob(glob, text);
    }
    if (typeof value === "string" && value.length > LONGEST_TEXT_CHARS) return true;
    const text = facts.folded(field);
    return text.length > LONGEST_TEXT_CHARS || matchesGlob(fold(glob), text);
  });
}
