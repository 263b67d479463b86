import type { AgentExit } from "../agents/port.ts";
import type { FailureReason } from "../protocol/events.ts";
import { failure } from "./controls.ts";
import { wake } from "./on-command.ts";
import { loseRequests } from "./requests.ts";
import type { State, Turn } from "./state.ts";
import { failTurns, keepPartial } from "./turns.ts";
import { change, speakForAgent, tell, type Work } from "./work.ts";

/** Exits in a row, without a finished turn between them, after which the session fails instead of starting again. */
const CRASH_LIMIT = 3;
/** The pause before a process that crashed is replaced; twice as long after each further crash. */
const FIRST_PAUSE_MS = 250;

/** A process that is gone, and what it leaves. */
export interface Exited {
  readonly exit: AgentExit;
  /**
   * The uuids of the user messages in the conversation as it is stored (design 5): these were taken. undefined = it cannot be read, then
   * each message counts as taken.
   */
  readonly taken?: ReadonlySet<string> | undefined;
  /** The session wants its unfinished turn run again. */
  readonly continues?: boolean;
  /** Numbers up to here may have been shown for output that nobody can read any more. */
  readonly jumpTo?: number;
}

const ids = (turns: readonly { readonly turnId: string }[]): string[] => turns.map((turn) => turn.turnId);

/** Everything that a process had, forgotten; what was not written to it yet waits for the next one. */
function forgetProcess(work: Work): void {
  const { usage, process: _gone, ...rest } = work.state;
  work.state = {
    ...rest,
    run: undefined,
    isAway: false,
    outbox: [],
    background: [],
    initialized: undefined,
    streaming: undefined,
    usage: { ...usage, pastCostUsd: usage.pastCostUsd + usage.processCostUsd, processCostUsd: 0 },
  };
  work.edge = "end";
}

/** Requests that the process asked are lost; control_requests that it was written end with this error. */
export function closeControls(work: Work, error: string, all: boolean): void {
  loseRequests(work);
  const { pending, held } = work.state;
  const closed = all ? pending : pending.filter((item) => item.written);
  for (const { requestId, commandId } of closed) {
    speakForAgent(work, failure(requestId, error), { command_id: commandId });
  }
  change(work, { pending: pending.filter((item) => !closed.includes(item)), held: all ? [] : held });
}

/**
 * What becomes of the turns that a dead process had. A message that is in its conversation is never sent again: its turn fails, or, where
 * the session wants that, stays open and is run again by the next process. One that never got there waits for that process, under its own uuid.
 */
function sortTurns(
  work: Work,
  { taken, continues, exit }: Omit<Exited, "exit"> & { readonly exit?: AgentExit },
  reason: FailureReason,
  message: string,
): void {
  // An answer that had begun to stream was seen: 2.1.197 writes its transcript and its echo late.
  const streams = work.state.streaming === undefined ? undefined : work.state.current;
  const sentUpTo = exit?.sentUpTo ?? Number.POSITIVE_INFINITY;
  const unsent = new Set(work.state.outbox.filter(({ id }) => id > sentUpTo).map(({ line }) => line));
  const isTaken = ({ turnId, seq, echoed, rerun }: Turn): boolean => {
    if (echoed || rerun === true || turnId === streams) return true;
    return (seq === undefined || !unsent.has(seq)) && (taken?.has(turnId) ?? true);
  };
  const entered = work.state.turns.filter((turn) => turn.by === "user" && isTaken(turn));
  const missed = work.state.turns.filter((turn) => turn.by === "user" && turn.seq !== undefined && !isTaken(turn));
  const again = continues === true && entered.length > 0;
  keepPartial(work);
  const failed = work.state.turns.filter((turn) => !missed.includes(turn) && !(again && entered.includes(turn)));
  failTurns(work, reason, message, ids(failed));
  requeue(work, missed);
  if (!again) return;
  change(work, {
    rerun: true,
    turns: work.state.turns.map((turn) => ({ ...turn, echoed: false, rerun: true as const })),
  });
}

function requeue(work: Work, missed: readonly Turn[]): void {
  const queue = missed.flatMap(({ turnId, seq, delivery = "after_turn", started }) =>
    seq === undefined ? [] : [{ turnId, seq, delivery, ...(started && { started }) }],
  );
  for (const { turnId, delivery } of queue) tell(work, "turn.queued", { turn_id: turnId, delivery }, turnId);
  const turns = work.state.turns.filter((turn) => !missed.includes(turn));
  const { current } = work.state;
  const runs = turns.some((turn) => turn.turnId === current);
  change(work, { turns, queue: [...queue, ...work.state.queue], current: runs ? current : undefined });
}

function exitText(exit: AgentExit): string {
  if (exit.spawnError !== undefined) return `The agent could not be started: ${exit.spawnError}.`;
  if (exit.lost === true) return "The runner of the agent has gone, and the agent with it.";
  const how = exit.signal === null ? `with exit code ${exit.code}` : `by ${exit.signal}`;
  const tail = exit.stderrTail.trim();
  return `The agent ended ${how}.${tail === "" ? "" : ` Its last words: ${tail.slice(-2000)}`}`;
}

/** The process and its group are gone. Returns the reason for the state that follows, if there is one to give. */
export function onExit(work: Work, exited: Exited): string | undefined {
  const { exit, jumpTo = 0 } = exited;
  const { phase } = work.state;
  if (jumpTo > work.state.seq) {
    change(work, { seq: jumpTo });
    tell(work, "session.recovered", {
      reason: "The runner of the agent has gone before all that it had said was read.",
    });
  }
  const tail = exit.stderrTail === "" ? {} : { stderr_tail: exit.stderrTail };
  const lost = exit.lost === true ? { lost: true as const } : {};
  tell(
    work,
    "agent.exited",
    { code: exit.code, signal: exit.signal, how: exit.how, ...lost, ...tail },
    work.state.current,
  );
  if (phase.name === "stopping" && phase.cause === "end") return finishEnd(work);
  if (phase.name === "starting") return onFailedStart(work, exited);
  const cause = phase.name === "stopping" ? phase.cause : undefined;
  return settle(work, exited, cause === "stalled" ? "stalled" : "agent_exited", cause === "hibernate");
}

/** Leaves the session without a process, and starts the next one where something waits for it. */
function settle(work: Work, exited: Exited, reason: FailureReason, wanted: boolean): string | undefined {
  const text = reason === "stalled" ? "The agent did not react any more and was stopped." : exitText(exited.exit);
  const crashes = wanted || exited.exit.code === 0 ? 0 : work.state.crashes + 1;
  closeControls(work, text, false);
  const givesUp = crashes >= CRASH_LIMIT;
  sortTurns(work, givesUp ? { ...exited, continues: false } : exited, reason, text);
  forgetProcess(work);
  if (givesUp) return fail(work, text, crashes);
  const pauseMs = crashes === 0 ? 0 : FIRST_PAUSE_MS * 2 ** (crashes - 1);
  const wakeAtMs = pauseMs === 0 ? {} : { wakeAtMs: work.now + pauseMs };
  change(work, { crashes, phase: { name: "hibernated", ...wakeAtMs } });
  wakeIfNeeded(work);
  return undefined;
}

/** It never answered `initialize`: trying again by ourselves would only do the same again. */
function onFailedStart(work: Work, exited: Exited): string {
  const text = exitText(exited.exit);
  closeControls(work, text, true);
  failTurns(work, "agent_start_failed", text, ids(work.state.turns));
  forgetProcess(work);
  return fail(work, text, exited.exit.code === 0 ? 0 : work.state.crashes + 1);
}

function fail(work: Work, text: string, crashes: number): string {
  failTurns(work, "agent_start_failed", text, ids(work.state.queue));
  closeControls(work, text, true);
  change(work, { crashes, rerun: false, phase: { name: "failed", reason: text } });
  return text;
}

/** Something waits for a process: messages, control_requests, or a turn to be run again. */
export function wakeIfNeeded(work: Work): void {
  const { queue, held, pending, rerun } = work.state;
  if (queue.length > 0 || held.length > 0 || pending.length > 0 || rerun) wake(work);
}

function finishEnd(work: Work): undefined {
  const text = "The session was ended.";
  closeControls(work, "session ended", true);
  keepPartial(work);
  failTurns(work, "session_ended", text, ids(work.state.turns));
  forgetProcess(work);
  failTurns(work, "session_ended", text, ids(work.state.queue));
  change(work, { phase: { name: "ended" } });
}

/** DELETE: an agent is stopped first; without one the session ends at once. */
export function onEnd(work: Work): void {
  const { phase } = work.state;
  switch (phase.name) {
    case "ended":
      return;
    case "stopping":
      return change(work, { phase: { ...phase, cause: "end" } });
    case "starting":
    case "live":
      interruptTurns(work);
      change(work, { phase: { name: "stopping", since: work.now, cause: "end" } });
      work.lifecycle = "stop";
      return;
    case "hibernated":
    case "failed":
      finishEnd(work);
  }
}

/** The ladder's rung before the first: the CLI can close a running turn itself. */
export function interruptTurns(work: Work): void {
  if (work.state.phase.name !== "live" || work.state.turns.length === 0) return;
  work.stdin.push({
    type: "control_request",
    request_id: `broker-${work.newId()}`,
    request: { subtype: "interrupt" },
  });
}

/** A server opened the session after another one's end, and its agent is gone (design 3, 5). */
export function onRecovered(work: Work, jumped: boolean, after: Omit<Exited, "exit">): void {
  const { phase } = work.state;
  const hadAgent = phase.name === "starting" || phase.name === "live" || phase.name === "stopping";
  if (!hadAgent && !jumped) return wakeIfNeeded(work);
  const message = "The server was restarted, and the agent is gone.";
  tell(work, "session.recovered", { reason: message });
  if (phase.name === "stopping" && phase.cause === "end") return finishEnd(work);
  closeControls(work, "outcome_unknown: the server was restarted", false);
  sortTurns(work, after, "server_restarted", message);
  forgetProcess(work);
  if (hadAgent) change(work, { phase: { name: "hibernated" } });
  wakeIfNeeded(work);
}

/** A server opened the session after another one's end, and its agent's runner is away: the agent may well live. */
export function onRecoveredAway(work: Work, jumpTo = 0): void {
  if (jumpTo > work.state.seq) change(work, { seq: jumpTo });
  tell(work, "session.recovered", { reason: "The server was restarted, and the runner of the agent is away." });
}

/** Whose messages have to be looked for in the stored conversation, should the process be gone. */
export const hasUnsureTurns = (state: State): boolean => state.turns.some((turn) => turn.by === "user" && !turn.echoed);
