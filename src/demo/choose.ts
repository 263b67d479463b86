import type { Conversation } from "./conversation.ts";
import type { Pattern, Reply, Rule, Step } from "./rules.ts";
import { type Captures, fillStep } from "./templates.ts";

/** Picks the reply of the first rule that fits, and counts rules that answer a limited number of times. */
export interface Chooser {
  choose(conversation: Conversation): readonly Step[];
}

/** @throws SyntaxError when a JSON pattern of the script is not a regular expression */
export function createChooser(script: readonly Rule[]): Chooser {
  const used = new Map<string, number>();
  return {
    choose(conversation) {
      for (const [index, rule] of script.entries()) {
        const captures = match(rule, conversation);
        if (captures === undefined || !take(used, index, rule, conversation)) continue;
        if (typeof rule.reply === "function") return stepsOf(rule.reply(conversation));
        return stepsOf(rule.reply).map((step) => fillStep(step, captures));
      }
      return unmatched(conversation);
    },
  };
}

function stepsOf(reply: Reply): readonly Step[] {
  return isStepList(reply) ? reply : [reply];
}

function isStepList(reply: Reply): reply is readonly Step[] {
  return Array.isArray(reply);
}

/** A loop of tool calls cannot happen by accident: a script that says nothing about a round ends the turn. */
function unmatched(conversation: Conversation): readonly Step[] {
  if (conversation.trigger === "notification") return [`Noted: ${conversation.notifications.at(-1)?.summary ?? ""}`];
  if (conversation.round > 0) return ["Done."];
  return [`No rule of the script matches "${conversation.text.slice(0, 80)}".`];
}

function match(rule: Rule, conversation: Conversation): Captures | undefined {
  if (rule.scope !== undefined && rule.scope !== conversation.scope) return undefined;
  if (!matchesMoment(rule, conversation)) return undefined;
  const text = rule.text === undefined ? [] : search(rule.text, conversation.text.trim());
  if (text === undefined) return undefined;
  const results = conversation.toolResults.filter(
    (result) =>
      (rule.tool === undefined || result.tool === rule.tool) &&
      (rule.isError === undefined || result.isError === rule.isError) &&
      (rule.result === undefined || search(rule.result, result.text) !== undefined),
  );
  if (asksForResult(rule) && results.length === 0) return undefined;
  const result = results.at(-1)?.text ?? conversation.toolResults.at(-1)?.text ?? "";
  const notification = conversation.notifications.at(-1);
  const report = notification === undefined ? "" : `${notification.summary}\n${notification.result}`.trim();
  return {
    cwd: conversation.cwd ?? ".",
    text: conversation.text,
    result,
    notification: report,
    textGroups: text,
    resultGroups: rule.result === undefined ? [] : (search(rule.result, result) ?? []),
    notificationGroups: isPattern(rule.notification) ? (search(rule.notification, report) ?? []) : [],
  };
}

function matchesMoment(rule: Rule, conversation: Conversation): boolean {
  if (rule.notification !== undefined) {
    const wanted = rule.notification;
    return conversation.notifications.some(
      ({ summary, result }) => !isPattern(wanted) || search(wanted, `${summary}\n${result}`.trim()) !== undefined,
    );
  }
  if (conversation.trigger === "notification" && conversation.round === 0) return false;
  const round = rule.round ?? (asksForResult(rule) ? "any" : 0);
  return round === "any" || round === conversation.round;
}

function asksForResult(rule: Rule): boolean {
  return rule.tool !== undefined || rule.isError !== undefined || rule.result !== undefined;
}

function isPattern(value: true | Pattern | undefined): value is Pattern {
  return value !== undefined && value !== true;
}

/** The groups of the first hit, the whole hit first; undefined when there is none. */
function search(pattern: Pattern, text: string): readonly string[] | undefined {
  if (typeof pattern === "string") return text.includes(pattern) ? [pattern] : undefined;
  const expression = pattern instanceof RegExp ? pattern : new RegExp(pattern.regex, pattern.flags);
  // `match` ignores the place where a global or sticky expression stopped last time.
  const found = text.match(new RegExp(expression.source, expression.flags.replace(/[gy]/g, "")));
  return found === null ? undefined : Array.from(found, (group) => group ?? "");
}

/** True when the rule may answer once more in this user turn. */
function take(used: Map<string, number>, index: number, rule: Rule, conversation: Conversation): boolean {
  if (rule.times === undefined) return true;
  const key = JSON.stringify([index, conversation.sessionId, conversation.userTexts.length]);
  const count = used.get(key) ?? 0;
  if (count >= rule.times) return false;
  used.set(key, count + 1);
  return true;
}
