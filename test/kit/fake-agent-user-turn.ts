import { runTurn } from "./fake-agent-actions.ts";
import type { Control } from "./fake-agent-control.ts";
import type { History } from "./fake-agent-history.ts";
import { type Conversation, emit, emitInit, emitResult } from "./fake-agent-turn.ts";
import { isMessage, type Message, noteTaken, part, text, writeLine } from "./fake-agent-wire.ts";

interface TurnPlace {
  readonly conversation: Conversation;
  readonly control: Control;
  readonly history: History;
  /** Whether user messages are echoed (`--replay-user-messages`). */
  readonly echoes: boolean;
}

/** One user message from receipt to result, in the CLI's order of lines. */
export async function runUserTurn(message: Message, place: TurnPlace): Promise<void> {
  const { conversation, control, history } = place;
  const uuid = text(message, "uuid");
  if (uuid !== "" && history.has(uuid)) {
    if (place.echoes) echo(message, conversation);
    lifecycle(conversation, uuid, "completed");
    return;
  }
  conversation.userUuids = uuid === "" ? [] : [uuid];
  lifecycle(conversation, uuid, "started");
  state(conversation, "running");
  emitInit(conversation);
  history.add(conversation.sessionId, message);
  noteTaken(uuid);
  if (place.echoes) echo(message, conversation);
  const signal = control.beginTurn();
  try {
    const { ask, askAndCancel, answersSeen } = control;
    await runTurn({ conversation, signal, ask, askAndCancel, answersSeen }, contentText(message));
    lifecycle(conversation, uuid, "completed");
  } catch (error) {
    if (!signal.aborted) throw error;
    emitInterrupted(conversation);
    lifecycle(conversation, uuid, "cancelled");
  }
  control.endTurn();
  state(conversation, "idle");
}

function emitInterrupted(conversation: Conversation): void {
  const content = [{ type: "text", text: "[Request interrupted by user]" }];
  emit(conversation, { type: "user", message: { role: "user", content }, parent_tool_use_id: null });
  const errors = ["[ede_diagnostic] interrupted"];
  const ended = { subtype: "error_during_execution", is_error: true, stop_reason: null };
  emitResult(conversation, { ...ended, terminal_reason: "aborted_streaming", errors });
}

function echo(message: Message, conversation: Conversation): void {
  writeLine(JSON.stringify({ ...message, session_id: conversation.sessionId, isReplay: true }));
}

function lifecycle(conversation: Conversation, uuid: string, lifecycleState: string): void {
  if (uuid !== "") emit(conversation, { type: "command_lifecycle", command_uuid: uuid, state: lifecycleState });
}

function state(conversation: Conversation, sessionState: string): void {
  if (process.env["CLAUDE_CODE_EMIT_SESSION_STATE_EVENTS"] !== "1") return;
  emit(conversation, { type: "system", subtype: "session_state_changed", state: sessionState });
}

function contentText(message: Message): string {
  const content = part(message, "message")["content"];
  if (typeof content === "string") return content;
  const blocks: readonly unknown[] = Array.isArray(content) ? content : [];
  return blocks
    .filter(isMessage)
    .map((block) => text(block, "text"))
    .join("");
}
