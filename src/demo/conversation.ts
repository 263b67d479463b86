import { fieldOf, listOf, textOf } from "./fields.ts";
import { foldedTexts, parseNotification, type TaskNotification, withoutReminders } from "./wrappings.ts";

/** A tool result that has come back since the model last spoke. */
interface ToolResult {
  readonly toolUseId: string;
  /** "" when the call is not in the messages (it was compacted away). */
  readonly tool: string;
  readonly isError: boolean;
  readonly text: string;
}

/** What a Messages API request says, seen through the things the CLI adds to it. */
export interface Conversation {
  /** "" when the request names no session. */
  readonly sessionId: string;
  readonly scope: "main" | "subagent";
  /** Working directory that the CLI told the model, if it did. */
  readonly cwd: string | undefined;
  /** Everything the user typed, oldest first, exactly as it reached the model; messages folded into a turn are unwrapped. */
  readonly userTexts: readonly string[];
  /** The newest of them, or "". */
  readonly text: string;
  /** What the model is asked to react to: the newest user text, or the end of a background task. */
  readonly trigger: "user" | "notification";
  /** Tool rounds completed since the trigger. */
  readonly round: number;
  readonly toolResults: readonly ToolResult[];
  readonly notifications: readonly TaskNotification[];
}

interface Reading {
  readonly userTexts: string[];
  readonly toolNames: Map<string, string>;
  trigger: "user" | "notification";
  round: number;
  toolResults: ToolResult[];
  notifications: TaskNotification[];
}

/** Reads the body of a /v1/messages request; unknown blocks and roles are skipped. */
export function readConversation(body: unknown, headers: Readonly<Record<string, unknown>>): Conversation {
  const reading: Reading = {
    userTexts: [],
    toolNames: new Map(),
    trigger: "user",
    round: 0,
    toolResults: [],
    notifications: [],
  };
  for (const message of listOf(fieldOf(body, "messages"))) readMessage(message, reading);
  return {
    sessionId: textOf(headers["x-claude-code-session-id"]),
    scope: headers["x-claude-code-agent-id"] === undefined ? "main" : "subagent",
    cwd: findWorkingDirectory(body),
    userTexts: reading.userTexts,
    text: reading.userTexts.at(-1) ?? "",
    trigger: reading.trigger,
    round: reading.round,
    toolResults: reading.toolResults,
    notifications: reading.notifications,
  };
}

function readMessage(message: unknown, reading: Reading): void {
  const role = fieldOf(message, "role");
  const blocks = blocksOf(fieldOf(message, "content"));
  if (role === "assistant") {
    reading.toolResults = [];
    reading.notifications = [];
    for (const block of blocks) {
      if (fieldOf(block, "type") === "tool_use")
        reading.toolNames.set(textOf(fieldOf(block, "id")), textOf(fieldOf(block, "name")));
    }
    return;
  }
  for (const block of blocks) {
    const type = fieldOf(block, "type");
    if (type === "tool_result") readToolResult(block, reading);
    // 2.1.197 puts messages folded into a running turn into a message of role "system", which otherwise holds only context.
    else if (type === "text") readText(textOf(fieldOf(block, "text")), role === "system", reading);
  }
}

function readToolResult(block: unknown, reading: Reading): void {
  if (reading.toolResults.length === 0) reading.round += 1;
  const toolUseId = textOf(fieldOf(block, "tool_use_id"));
  reading.toolResults.push({
    toolUseId,
    tool: reading.toolNames.get(toolUseId) ?? "",
    isError: fieldOf(block, "is_error") === true,
    text: blocksOf(fieldOf(block, "content"))
      .map((part) => textOf(fieldOf(part, "text")))
      .join(""),
  });
}

function readText(text: string, onlyFolded: boolean, reading: Reading): void {
  const notification = parseNotification(text);
  if (notification !== undefined) {
    // A task that ends while a turn runs is reported beside a tool result: the turn goes on.
    if (reading.toolResults.length === 0) {
      reading.trigger = "notification";
      reading.round = 0;
    }
    reading.notifications.push(notification);
    return;
  }
  const folded = foldedTexts(text);
  const rest = onlyFolded || folded.length > 0 ? undefined : withoutReminders(text);
  const typed = rest === undefined ? folded : [rest];
  if (typed.length === 0) return;
  reading.userTexts.push(...typed);
  reading.trigger = "user";
  reading.round = 0;
  reading.toolResults = [];
  reading.notifications = [];
}

/** The content of a message or tool result as blocks; the API allows a bare string for one text block. */
function blocksOf(content: unknown): readonly unknown[] {
  return typeof content === "string" ? [{ type: "text", text: content }] : listOf(content);
}

/** Where the CLI writes the working directory differs by version: in the system prompt, or in a message of role "system". */
function findWorkingDirectory(body: unknown): string | undefined {
  const places = [
    ...blocksOf(fieldOf(body, "system")),
    ...listOf(fieldOf(body, "messages"))
      .filter((message) => fieldOf(message, "role") === "system")
      .flatMap((message) => blocksOf(fieldOf(message, "content"))),
  ];
  for (const place of places) {
    const found = /^[ -]*(?:Primary w|W)orking directory: (.+)$/m.exec(textOf(fieldOf(place, "text")));
    if (found !== null) return found[1];
  }
  return undefined;
}
