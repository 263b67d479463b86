import { readFileSync } from "node:fs";
import type { Rule } from "../../src/demo/rules.ts";
import type { WeightedText } from "./driver.ts";

/** What the model of the real CLI says. */
export const REAL_SCRIPT: readonly Rule[] = [
  { text: "long", reply: { text: "one word after the other, ".repeat(60), chunkChars: 20 } },
  { text: "tool", reply: { tool: "Bash", input: { command: "touch made-$RANDOM" } } },
  { text: "hang", reply: ["so far", { hold: "for ever" }] },
  { round: "any", reply: "done" },
];

/** What a user says to it, by how often; each message can be found in what the model is told. */
export const REAL_TEXTS: readonly WeightedText[] = [
  [5, (_random, uuid) => `hello ${uuid}`],
  [4, (_random, uuid) => `long ${uuid}`],
  [4, (_random, uuid) => `tool ${uuid}`],
  [1, (_random, uuid) => `hang ${uuid}`],
];

export function realEnvironment(modelUrl: string): Record<string, string> {
  return {
    ANTHROPIC_BASE_URL: modelUrl,
    ANTHROPIC_API_KEY: "sk-ant-chaos-0123456789",
    CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC: "1",
  };
}

/** Whether that process is still one of ours: a pid may have come to be somebody else's. */
export function isRealAgent(pid: number): boolean {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, "utf8").includes("--input-format");
  } catch {
    return false;
  }
}
