import type { AgentOutput } from "../agents/port.ts";
import type { Command } from "../protocol/commands.ts";
import { timeOutControl } from "./on-agent-control.ts";
import { onCommand } from "./on-command.ts";
import { type Exited, onEnd, onExit, onRecovered, onRecoveredAway } from "./on-exit.ts";
import { onLine, onOtherOutput } from "./on-line.ts";
import { onNote } from "./on-note.ts";
import { onOwnerDue, onRegister, onUnregister, type Registering } from "./on-owner.ts";
import { onPark, onUnpark } from "./on-park.ts";
import { onAway, onHibernate, onQuit, onRerunDue, onSilent, onStallDue, onWaiting, onWakeDue } from "./on-time.ts";
import { initializeRequest } from "./owners.ts";
import type { Actor, Decide, Note } from "./port.ts";
import { expireRequest } from "./requests.ts";
import type { State } from "./state.ts";
import { change, finishWork, type Outcome, startWork, tell, type Work } from "./work.ts";

/** Everything that can happen to a session. */
export type Signal =
  | { readonly type: "command"; readonly command: Command; readonly actor: Actor }
  | { readonly type: "output"; readonly lines: readonly AgentOutput[]; readonly lineLimitBytes: number }
  | {
      readonly type: "spawned";
      readonly pid: number;
      readonly process: State["process"];
      readonly resumed: boolean;
    }
  | ({ readonly type: "exited" } & Exited)
  | ({ readonly type: "recovered"; readonly jumped: boolean } & Omit<Exited, "exit">)
  | { readonly type: "recovered_away"; readonly jumpTo?: number }
  /** The runner has these lines of stdin; it cannot be reached; it can again. */
  | { readonly type: "written"; readonly id: number }
  | { readonly type: "away"; readonly isAway: boolean }
  | { readonly type: "waiting"; readonly run: string; readonly reason: string | undefined }
  | { readonly type: "hibernate" }
  | { readonly type: "wake_due" }
  | { readonly type: "silent"; readonly forMs: number }
  | { readonly type: "stall_due"; readonly turnId: string }
  | { readonly type: "rerun_due" }
  | { readonly type: "quit" }
  /** The time that a policy gave for an answer, or the CLI had for a control_request, is over. */
  | { readonly type: "request_due"; readonly requestId: string }
  | { readonly type: "control_due"; readonly requestId: string }
  | ({ readonly type: "register" } & Registering)
  | { readonly type: "unregister"; readonly connectionId: string }
  | { readonly type: "owner_due"; readonly owner: string; readonly awaySinceMs?: number | undefined }
  /** Its agent is taken away; `forgets`: with what waits for it. Or it is given back, and starts. */
  | { readonly type: "park"; readonly forgets: boolean }
  | { readonly type: "unpark" }
  | { readonly type: "note"; readonly note: Note; readonly actor: Actor }
  | { readonly type: "end" };

/** Where time and fresh ids come from; the step itself has no other input. */
export interface StepContext {
  readonly now: number;
  readonly newId: () => string;
  /** Policy before people. Pure and at once. */
  readonly decide: Decide;
}

/**
 * One step of a session: what becomes of its state, which events it appends, what goes to the agent's stdin once they are durable.
 * Pure: the same arguments give the same outcome. @throws BrokerError for a command that is refused; then nothing has happened
 */
export function step(state: State, signal: Signal, context: StepContext): Outcome {
  const work = startWork(state, context);
  take(work, signal);
  return finishWork(work);
}

function take(work: Work, signal: Signal): void {
  switch (signal.type) {
    case "command":
      return onCommand(work, signal.command, signal.actor);
    case "output":
      return onOutput(work, signal.lines, signal.lineLimitBytes);
    case "spawned":
      return onSpawned(work, signal);
    case "written":
      return change(work, { outbox: work.state.outbox.filter((line) => line.id > signal.id) });
    case "exited":
      work.reason = onExit(work, signal);
      return;
    case "recovered":
      return onRecovered(work, signal.jumped, signal);
    case "recovered_away":
      return onRecoveredAway(work, signal.jumpTo);
    case "away":
      return onAway(work, signal.isAway);
    case "waiting":
      return onWaiting(work, signal.run, signal.reason);
    case "request_due":
      return expireRequest(work, signal.requestId);
    case "control_due":
      return timeOutControl(work, signal.requestId);
    case "register":
      return onRegister(work, signal);
    case "unregister":
      return onUnregister(work, signal.connectionId);
    case "owner_due":
      return onOwnerDue(work, signal.owner, signal.awaySinceMs);
    case "hibernate":
      return onHibernate(work);
    case "wake_due":
      return onWakeDue(work);
    case "silent":
      return onSilent(work, signal.forMs);
    case "stall_due":
      return onStallDue(work, signal.turnId);
    case "rerun_due":
      return onRerunDue(work);
    case "quit":
      return onQuit(work);
    case "park":
      return onPark(work, signal.forgets);
    case "unpark":
      return onUnpark(work);
    case "note":
      return onNote(work, signal.note, signal.actor);
    case "end":
      return onEnd(work);
  }
}

function onOutput(work: Work, lines: readonly AgentOutput[], lineLimitBytes: number): void {
  // Whatever comes, the silence is over.
  if (work.state.stalled !== undefined && !work.state.stalled.interrupted) change(work, { stalled: undefined });
  for (const output of lines) {
    if (output.kind === "line") onLine(work, output);
    else onOtherOutput(work, output, lineLimitBytes);
  }
}

/** initialize goes first, once per process; user messages wait for its answer (known-bugs 12). */
function onSpawned(work: Work, signal: Extract<Signal, { type: "spawned" }>): void {
  const { phase, cliSessionId } = work.state;
  if (signal.process) change(work, { process: signal.process });
  tell(work, "agent.started", { pid: signal.pid, cli_session_id: cliSessionId, resumed: signal.resumed });
  if (phase.name !== "starting") return;
  work.stdin.push(initializeRequest(phase.initializeId, work.state.owners));
}
