import { fieldOf, listOf, textOf } from "./fields.ts";
import type { Step } from "./rules.ts";

/** A call that the CLI makes for itself; a script never sees it. */
export type SideRequest =
  | { readonly kind: "quota" }
  | { readonly kind: "structured"; readonly schema: unknown }
  | { readonly kind: "forced_tool"; readonly tool: string; readonly schema: unknown }
  | { readonly kind: "compact" }
  | { readonly kind: "side_question" }
  | { readonly kind: "helper" };

const COMPACT = "CRITICAL: Respond with TEXT ONLY. Do NOT call any tools.";
const SIDE_QUESTION = "<system-reminder>This is a side question from the user.";
/** Questions that the CLI puts at the end of a copy of the conversation. */
const HELPER_QUESTIONS = [
  "[SUGGESTION MODE:",
  "The user stepped away and is coming back.",
  "Describe your most recent action in 3-5 words",
];

/** Says which call of the CLI's own this is, or undefined for a turn of a session or subagent. */
export function sideRequestOf(body: unknown, headers: Readonly<Record<string, unknown>>): SideRequest | undefined {
  if (fieldOf(body, "max_tokens") === 1) return { kind: "quota" };
  const format = fieldOf(fieldOf(body, "output_config"), "format");
  if (fieldOf(format, "type") === "json_schema") return { kind: "structured", schema: fieldOf(format, "schema") };
  const tools = listOf(fieldOf(body, "tools"));
  const forced = forcedTool(body, tools);
  if (forced !== undefined) return forced;
  const endTexts = newestUserTexts(body);
  if (endTexts.some((text) => text.startsWith(COMPACT))) return { kind: "compact" };
  if (endTexts.some((text) => text.startsWith(SIDE_QUESTION))) return { kind: "side_question" };
  if (endTexts.some((text) => HELPER_QUESTIONS.some((words) => text.startsWith(words)))) return { kind: "helper" };
  // Command prefixes, page summaries, labels: from the CLI, without tools and without the context editing of a session.
  const fromCli = headers["x-app"] === "cli";
  if (fromCli && tools.length === 0 && fieldOf(body, "context_management") === undefined) return { kind: "helper" };
  return undefined;
}

/** A harmless answer, of the shape that the CLI expects. */
export function answerSideRequest(side: SideRequest): readonly Step[] {
  switch (side.kind) {
    case "quota":
      return ["."];
    case "structured":
      return [JSON.stringify(sampleOf(side.schema))];
    case "forced_tool": {
      const sample = sampleOf(side.schema);
      return [{ tool: side.tool, input: typeof sample === "object" && sample !== null ? { ...sample } : {} }];
    }
    case "compact":
      return [
        "<analysis>A scripted conversation.</analysis>\n<summary>The user talked with a scripted model.</summary>",
      ];
    case "side_question":
      return ["The scripted model has no opinion about side questions."];
    case "helper":
      return ["none"];
  }
}

function forcedTool(body: unknown, tools: readonly unknown[]): SideRequest | undefined {
  const choice = fieldOf(body, "tool_choice");
  if (fieldOf(choice, "type") !== "tool") return undefined;
  const name = textOf(fieldOf(choice, "name"));
  const tool = tools.find((candidate) => fieldOf(candidate, "name") === name);
  return { kind: "forced_tool", tool: name, schema: fieldOf(tool, "input_schema") };
}

/** Texts of the user after the model last spoke, as they are. */
function newestUserTexts(body: unknown): readonly string[] {
  const messages = listOf(fieldOf(body, "messages"));
  const start = messages.findLastIndex((message) => fieldOf(message, "role") === "assistant") + 1;
  return messages.slice(start).flatMap((message) => {
    const content = fieldOf(message, "content");
    return typeof content === "string" ? [content] : listOf(content).map((block) => textOf(fieldOf(block, "text")));
  });
}

/** The smallest plain value that fits a JSON schema well enough for the CLI's own questions. */
function sampleOf(schema: unknown): unknown {
  const options = listOf(fieldOf(schema, "enum"));
  if (options.length > 0) return options[0];
  switch (fieldOf(schema, "type")) {
    case "object": {
      const properties = fieldOf(schema, "properties");
      const required = listOf(fieldOf(schema, "required")).map(textOf);
      return Object.fromEntries(required.map((name) => [name, sampleOf(fieldOf(properties, name))]));
    }
    case "array":
      return [];
    case "boolean":
      return false;
    case "number":
    case "integer":
      return 0;
    default:
      return "Scripted session";
  }
}
