import { randomUUID } from "node:crypto";
import { type Message, writeLine } from "./fake-agent-wire.ts";

/** What the lines of a turn need to know. */
export interface Conversation {
  sessionId: string;
  /** uuids of the user messages of the running turn. */
  userUuids: readonly string[];
  readonly showsPreviews: boolean;
}

/** Prints one line with the fields that every line of the CLI has. */
export function emit(conversation: Conversation, message: Message): void {
  writeLine(JSON.stringify({ ...message, session_id: conversation.sessionId, uuid: randomUUID() }));
}

export function emitInit(conversation: Conversation): void {
  emit(conversation, {
    type: "system",
    subtype: "init",
    cwd: process.cwd(),
    tools: ["Bash", "AskUserQuestion"],
    mcp_servers: [],
    model: "fake-model",
    permissionMode: "default",
    apiKeySource: "none",
    claude_code_version: "9.9.9",
    capabilities: [],
    user_message_uuids: conversation.userUuids,
  });
}

function emitPreview(conversation: Conversation, event: Message): void {
  if (conversation.showsPreviews) emit(conversation, { type: "stream_event", event, parent_tool_use_id: null });
}

export function emitDelta(conversation: Conversation, text: string): void {
  emitPreview(conversation, { type: "content_block_delta", index: 0, delta: { type: "text_delta", text } });
}

export function startMessage(conversation: Conversation): void {
  const message = { id: "msg_fake", type: "message", role: "assistant", model: "fake-model", content: [] };
  emitPreview(conversation, { type: "message_start", message });
  emitPreview(conversation, { type: "content_block_start", index: 0, content_block: { type: "text", text: "" } });
}

export function assistantMessage(text: string): Message {
  const content = [{ type: "text", text }];
  const message = {
    id: "msg_fake",
    type: "message",
    role: "assistant",
    model: "fake-model",
    content,
    stop_reason: null,
  };
  return { type: "assistant", message, parent_tool_use_id: null };
}

/** The complete message, then the end of its preview: the CLI's order. */
export function endMessage(conversation: Conversation, text: string): void {
  emit(conversation, assistantMessage(text));
  emitPreview(conversation, { type: "content_block_stop", index: 0 });
  emitPreview(conversation, { type: "message_delta", delta: { stop_reason: "end_turn", stop_sequence: null } });
  emitPreview(conversation, { type: "message_stop" });
}

export function emitResult(conversation: Conversation, fields: Message): void {
  emit(conversation, {
    type: "result",
    subtype: "success",
    is_error: false,
    duration_ms: 1,
    num_turns: 1,
    stop_reason: "end_turn",
    total_cost_usd: 0.001,
    usage: { input_tokens: 1, output_tokens: 1 },
    permission_denials: [],
    terminal_reason: "completed",
    ...(conversation.userUuids.length > 0 && { user_message_uuids: conversation.userUuids }),
    ...fields,
  });
}
