import type { AgentOutput } from "../agents/port.ts";
import { isJsonObject, type JsonObject, stringField } from "../protocol/json.ts";
import { onAgentControl } from "./on-agent-control.ts";
import { cancelRequests } from "./requests.ts";
import { PARTIAL_LIMIT_CHARS, type Turn } from "./state.ts";
import { endingOf, endTurns, startNext, startTurn, turnsEndedBy, withdrawTurn } from "./turns.ts";
import { change, type Draft, emit, tell, type Work } from "./work.ts";

type Line = Extract<AgentOutput, { kind: "line" }>;

/** One line of the agent's stdout. Its bytes become the payload unchanged (contract promise 4); a parsed copy moves the state. */
export function onLine(work: Work, line: Line): void {
  const type = stringField(line.message, "type") ?? "unknown";
  switch (type) {
    case "stream_event":
      forward(work, line, type, { preview: true });
      return follow(work, line.message);
    case "control_request":
    case "control_response":
    case "control_cancel_request":
      return onAgentControl(work, line.message, (extra) => forward(work, line, type, extra));
    case "system":
      return onSystem(work, line);
    case "user":
      return onUser(work, line);
    case "assistant":
      forward(work, line, type);
      if (stringField(line.message, "parent_tool_use_id") === undefined) change(work, { streaming: undefined });
      return;
    case "result":
      return onResult(work, line);
    // It exists only because the server asked for it: stored by the engine, shown to nobody (contract promise 4).
    case "transcript_mirror":
      work.mirrored.push(line.bytes);
      return;
    case "command_lifecycle":
      forward(work, line, type);
      if (line.message.state === "cancelled") withdrawTurn(work, stringField(line.message, "command_uuid") ?? "");
      return;
    default:
      forward(work, line, type);
  }
}

/** Output that is not an agent event, told so that nothing disappears in silence (contract promise 4). */
export function onOtherOutput(work: Work, output: Exclude<AgentOutput, Line>, limitBytes: number): void {
  if (output.kind === "dropped") {
    tell(work, "agent.line_dropped", { bytes: output.bytes, limit_bytes: limitBytes }, work.state.current);
    return;
  }
  const bytes = Buffer.from(output.bytes);
  const text = bytes.toString("utf8");
  const clean = Buffer.from(text, "utf8").equals(bytes);
  tell(
    work,
    "agent.log",
    clean ? { stream: "stdout", text } : { stream: "stdout", base64: bytes.toString("base64") },
    work.state.current,
  );
}

function forward(work: Work, line: Line, event_type: string, extra: Partial<Draft> = {}): number {
  const { current } = work.state;
  return emit(work, {
    event_type,
    origin: "AGENT_EVENT",
    source: "agent",
    payload: line.bytes,
    ...(current !== undefined && { turn_id: current }),
    ...extra,
  });
}

/** Keeps the text of the message that is streaming, for turn.partial. A finished block is in an `assistant` line already. */
function follow(work: Work, message: JsonObject): void {
  const event = message.event;
  if (!isJsonObject(event) || stringField(message, "parent_tool_use_id") !== undefined) return;
  if (event.type === "message_start") {
    return change(work, {
      streaming: { messageId: isJsonObject(event.message) ? stringField(event.message, "id") : undefined, text: "" },
    });
  }
  const text = event.type === "content_block_delta" ? stringField(event.delta, "text") : undefined;
  const known = work.state.streaming?.text ?? "";
  // It is stored with each commit: what never ends must not grow with it.
  if (text === undefined || known.length >= PARTIAL_LIMIT_CHARS) return;
  change(work, {
    streaming: { messageId: work.state.streaming?.messageId, text: (known + text).slice(0, PARTIAL_LIMIT_CHARS) },
  });
}

function onSystem(work: Work, line: Line): void {
  const { message } = line;
  switch (message.subtype) {
    case "init":
      return onInit(work, line);
    case "status":
      forward(work, line, "system");
      if (typeof message.permissionMode === "string") change(work, { permissionMode: message.permissionMode });
      return;
    case "api_retry": {
      forward(work, line, "system");
      const delayMs = typeof message.retry_delay_ms === "number" ? message.retry_delay_ms : 0;
      return change(work, { retryUntilMs: work.now + delayMs });
    }
    case "background_tasks_changed":
      forward(work, line, "system");
      return change(work, { background: taskIds(message.tasks) });
    default:
      forward(work, line, "system");
  }
}

function taskIds(tasks: unknown): readonly string[] {
  return (Array.isArray(tasks) ? tasks : []).flatMap((task: unknown) => stringField(task, "task_id") ?? []);
}

/** `init` opens every turn, not every process. One that nobody asked for is a turn the CLI started by itself. */
function onInit(work: Work, line: Line): void {
  const { message } = line;
  if (work.state.rerun) change(work, { rerun: false });
  const listed: readonly unknown[] = Array.isArray(message.user_message_uuids) ? message.user_message_uuids : [];
  const named = work.state.turns.find((turn) => listed.includes(turn.turnId));
  if (named !== undefined && named.turnId !== work.state.current) startTurn(work, named);
  else if (work.state.turns.length === 0) startTurn(work, agentTurn(work));
  const cliSessionId = stringField(message, "session_id");
  change(work, {
    model: stringField(message, "model") ?? work.state.model,
    permissionMode: stringField(message, "permissionMode") ?? work.state.permissionMode,
    version: stringField(message, "claude_code_version") ?? work.state.version,
    // /clear and forks change the CLI's id; ours never changes.
    ...(cliSessionId !== undefined && cliSessionId !== work.state.cliSessionId && { cliSessionId }),
  });
  forward(work, line, "system");
}

function agentTurn(work: Work): Turn {
  return { turnId: work.newId(), by: "agent", started: false, echoed: false };
}

/** An echo of a message that we wrote says that the CLI has taken it. */
function onUser(work: Work, line: Line): void {
  const uuid = line.message.isReplay === true ? stringField(line.message, "uuid") : undefined;
  const turn = work.state.turns.find((item) => item.turnId === uuid);
  if (turn === undefined) {
    forward(work, line, "user");
    return;
  }
  if (work.state.current === undefined) startTurn(work, turn);
  change(work, { turns: work.state.turns.map((item) => (item.turnId === uuid ? { ...item, echoed: true } : item)) });
  forward(work, line, "user", turn.seq === undefined ? {} : { echo_of: turn.seq });
}

function onResult(work: Work, line: Line): void {
  const { message } = line;
  const ended = turnsEndedBy(work, message);
  const ending = endingOf(message);
  if (ending.outcome === "completed" && ending.stopReason === "interrupted") cancelRequests(work, ended);
  forward(work, line, "result", ended[0] === undefined ? {} : { turn_id: ended[0] });
  const cost = typeof message.total_cost_usd === "number" ? message.total_cost_usd : work.state.usage.processCostUsd;
  change(work, {
    crashes: 0,
    usage: { ...work.state.usage, processCostUsd: cost, turns: work.state.usage.turns + (ended.length > 0 ? 1 : 0) },
  });
  if (ended.length > 0) endTurns(work, ending, ended, message);
  startNext(work);
}
