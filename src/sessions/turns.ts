import type { FailureReason, StopReason } from "../protocol/events.ts";
import { isJsonObject, type JsonObject, stringField } from "../protocol/json.ts";
import { PARTIAL_LIMIT_CHARS, type QueuedTurn, type Turn } from "./state.ts";
import { change, speakForAgent, tell, type Work } from "./work.ts";

/** Marks a turn as the one that lines belong to now, and says so. */
export function startTurn(work: Work, turn: Turn): void {
  const started = { ...turn, started: true };
  const known = work.state.turns.some((other) => other.turnId === turn.turnId);
  change(work, {
    current: turn.turnId,
    turns: known
      ? work.state.turns.map((other) => (other.turnId === turn.turnId ? started : other))
      : [...work.state.turns, started],
  });
  if (!turn.started) tell(work, "turn.started", { turn_id: turn.turnId, by: turn.by }, turn.turnId);
  work.edge ??= "begin";
}

/** Writes what may be written now: the next message when no turn runs, and every at_once message in any case. */
export function startNext(work: Work): void {
  if (work.state.phase.name !== "live") return;
  const next = work.state.turns[0];
  if (next !== undefined) {
    if (work.state.current === undefined) startTurn(work, next);
  } else if (work.state.queue[0] !== undefined) {
    const [first, ...rest] = work.state.queue;
    change(work, { queue: rest });
    startTurn(work, writeMessage(work, first));
  }
  const atOnce = work.state.queue.filter((queued) => queued.delivery === "at_once");
  if (atOnce.length === 0) return;
  change(work, { queue: work.state.queue.filter((queued) => queued.delivery !== "at_once") });
  for (const queued of atOnce) change(work, { turns: [...work.state.turns, writeMessage(work, queued)] });
}

function writeMessage(work: Work, queued: QueuedTurn): Turn {
  work.stdin.push(queued.seq);
  const { turnId, seq, delivery, started = false } = queued;
  return { turnId, by: "user", seq, delivery, started, echoed: false };
}

type Ending =
  | { readonly outcome: "completed"; readonly stopReason: StopReason }
  | { readonly outcome: "failed"; readonly reason: FailureReason; readonly message: string; readonly status?: number };

/** What a `result` line means (spec/claude-protocol 2: subtype success does not mean success). */
export function endingOf(result: JsonObject): Ending {
  const terminal = stringField(result, "terminal_reason") ?? "";
  if (terminal.startsWith("aborted")) return { outcome: "completed", stopReason: "interrupted" };
  if (result.subtype === "error_max_turns") return { outcome: "completed", stopReason: "max_turns" };
  if (result.subtype === "error_max_budget_usd") return { outcome: "completed", stopReason: "max_budget" };
  if (result.is_error !== true)
    return { outcome: "completed", stopReason: stringField(result, "stop_reason") ?? "end_turn" };
  const status = result.api_error_status;
  const errors = Array.isArray(result.errors) ? result.errors.filter((item) => typeof item === "string") : [];
  return {
    outcome: "failed",
    reason: result.subtype === "success" ? "api_error" : "execution_error",
    message: (stringField(result, "result") ?? errors.join("; ")) || "The agent ended the turn with an error.",
    ...(typeof status === "number" && { status }),
  };
}

/** Ends turns with one result: the first in full, the others as folded into it (spec/claude-protocol 4.4). */
export function endTurns(work: Work, ending: Ending, turnIds: readonly string[], result: JsonObject | undefined): void {
  const primary = turnIds[0];
  for (const turn_id of turnIds) {
    if (ending.outcome === "completed") {
      const folded = primary !== undefined && turn_id !== primary ? { folded_into: primary } : {};
      tell(work, "turn.completed", { turn_id, stop_reason: ending.stopReason, ...folded }, turn_id);
    } else {
      const status = ending.status === undefined ? {} : { api_error_status: ending.status };
      tell(work, "turn.failed", { turn_id, reason: ending.reason, message: ending.message, ...status }, turn_id);
    }
    const reason = ending.outcome === "completed" ? ending.stopReason : ending.reason;
    work.ended.push({ turn_id, outcome: ending.outcome, reason, result });
  }
  dropTurns(work, turnIds);
}

function dropTurns(work: Work, turnIds: readonly string[]): void {
  const turns = work.state.turns.filter((turn) => !turnIds.includes(turn.turnId));
  const running = turns.some((turn) => turn.turnId === work.state.current);
  change(work, {
    turns,
    queue: work.state.queue.filter((queued) => !turnIds.includes(queued.turnId)),
    current: running ? work.state.current : undefined,
    ...(running ? {} : { streaming: undefined, stalled: undefined }),
  });
  if (!running) work.edge = "end";
}

/** A message that never started: taken back by a client. */
export function withdrawTurn(work: Work, turnId: string): boolean {
  const queued = work.state.queue.some((item) => item.turnId === turnId);
  const waiting = work.state.turns.some((turn) => turn.turnId === turnId && !turn.started);
  if (!queued && !waiting) return false;
  const edge = work.edge;
  endTurns(work, { outcome: "completed", stopReason: "withdrawn" }, [turnId], undefined);
  if (work.state.current !== undefined) work.edge = edge;
  return true;
}

/** The text of a message that will not be finished becomes durable. */
export function keepPartial(work: Work): void {
  const { current, streaming } = work.state;
  if (current !== undefined && streaming !== undefined && streaming.text !== "") {
    const id = streaming.messageId === undefined ? {} : { message_id: streaming.messageId };
    const cut = streaming.text.length >= PARTIAL_LIMIT_CHARS ? { truncated: true as const } : {};
    tell(work, "turn.partial", { turn_id: current, ...id, text: streaming.text, ...cut }, current);
  }
  change(work, { streaming: undefined });
}

/** Every unfinished turn fails; whoever waits for a `result` line gets one (contract 5). */
export function failTurns(work: Work, reason: FailureReason, message: string, turnIds: readonly string[]): void {
  for (const turnId of turnIds) {
    const line = {
      type: "result",
      subtype: "error_during_execution",
      is_error: true,
      errors: [message],
      session_id: work.state.cliSessionId,
    };
    speakForAgent(work, line, { turn_id: turnId });
    endTurns(work, { outcome: "failed", reason, message }, [turnId], line);
  }
}

/** Which turns a `result` ends, the first one in full: by message uuid and origin, never by counting (design 5). */
export function turnsEndedBy(work: Work, result: JsonObject): readonly string[] {
  const { turns, current } = work.state;
  const listed = Array.isArray(result.user_message_uuids) ? result.user_message_uuids : undefined;
  const taken = turns.filter((turn) => turn.by === "user" && (listed ? listed.includes(turn.turnId) : turn.echoed));
  const own = turns.find((turn) => turn.by === "agent");
  const origin = isJsonObject(result.origin) ? stringField(result.origin, "kind") : undefined;
  if (origin === "task-notification") return [own?.turnId ?? ownTurn(work), ...taken.map((turn) => turn.turnId)];
  const ended = [...(own ? [own] : []), ...taken];
  if (ended.length === 0 && turns[0] !== undefined) return [turns[0].turnId];
  const ids = ended.map((turn) => turn.turnId);
  return current !== undefined && ids.includes(current) ? [current, ...ids.filter((id) => id !== current)] : ids;
}

/** A turn that the agent started while a user's message was already on its way: known only by its result. */
function ownTurn(work: Work): string {
  const turnId = work.newId();
  tell(work, "turn.started", { turn_id: turnId, by: "agent" }, turnId);
  return turnId;
}
