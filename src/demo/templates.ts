import type { Step } from "./rules.ts";

/** What a reply may insert. The lists hold the groups of a pattern, the whole hit first. */
export interface Captures {
  readonly cwd: string;
  readonly text: string;
  readonly result: string;
  readonly notification: string;
  readonly textGroups: readonly string[];
  readonly resultGroups: readonly string[];
  readonly notificationGroups: readonly string[];
}

/** Fills `$1` and `{{…}}` in every string that a step shows or passes to a tool. */
export function fillStep(step: Step, captures: Captures): Step {
  if (typeof step === "string") return fill(step, captures);
  if ("text" in step) return { ...step, text: fill(step.text, captures) };
  if ("thinking" in step) return { thinking: fill(step.thinking, captures) };
  if ("tool" in step) {
    const entries = Object.entries(step.input).map(([name, value]) => [name, fillValue(value, captures)]);
    return { ...step, input: Object.fromEntries(entries) };
  }
  return step;
}

function fillValue(value: unknown, captures: Captures): unknown {
  if (typeof value === "string") return fill(value, captures);
  if (Array.isArray(value)) return value.map((item) => fillValue(item, captures));
  if (typeof value !== "object" || value === null) return value;
  return Object.fromEntries(Object.entries(value).map(([name, item]) => [name, fillValue(item, captures)]));
}

function fill(text: string, captures: Captures): string {
  return text.replace(/\$([1-9])|\{\{(\w+)(?:\.(\d))?\}\}/g, (whole, digit, name, group) => {
    // `$1` of a shell command stays as it is unless the rule's text pattern has such a group.
    if (digit !== undefined) return captures.textGroups[Number(digit)] ?? whole;
    const index = group === undefined ? undefined : Number(group);
    switch (name) {
      case "cwd":
        return captures.cwd;
      case "text":
        return index === undefined ? captures.text : (captures.textGroups[index] ?? "");
      case "result":
        return index === undefined ? captures.result : (captures.resultGroups[index] ?? "");
      case "notification":
        return index === undefined ? captures.notification : (captures.notificationGroups[index] ?? "");
      default:
        return whole;
    }
  });
}
