import type { AgentExit, AgentOutput } from "../agents/port.ts";
import type { Command } from "../protocol/commands.ts";
import { timeOutControl } from "./on-agent-control.ts";
import { onCommand } from "./on-command.ts";
import { onEnd, onExit, onRecovered } from "./on-exit.ts";
import { onLine, onOtherOutput } from "./on-line.ts";
import { onOwnerDue, onRegister, onUnregister, type Registering } from "./on-owner.ts";
import { initializeRequest } from "./owners.ts";
import type { Actor, Decide } from "./port.ts";
import { expireRequest } from "./requests.ts";
import type { Snapshot, State } from "./state.ts";
import { change, finishWork, type Outcome, startWork, tell, type Work } from "./work.ts";

/** Everything that can happen to a session. */
export type Signal =
  | { readonly type: "command"; readonly command: Command; readonly actor: Actor }
  | { readonly type: "output"; readonly lines: readonly AgentOutput[]; readonly lineLimitBytes: number }
  | {
      readonly type: "spawned";
      readonly pid: number;
      readonly process: Snapshot["process"];
      readonly resumed: boolean;
    }
  | { readonly type: "exited"; readonly exit: AgentExit }
  | { readonly type: "recovered"; readonly jumped: boolean }
  /** The time that a policy gave for an answer, or the CLI had for a control_request, is over. */
  | { readonly type: "request_due"; readonly requestId: string }
  | { readonly type: "control_due"; readonly requestId: string }
  | ({ readonly type: "register" } & Registering)
  | { readonly type: "unregister"; readonly connectionId: string }
  | { readonly type: "owner_due"; readonly owner: string; readonly awaySinceMs?: number | undefined }
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
  switch (signal.type) {
    case "command":
      onCommand(work, signal.command, signal.actor);
      return finishWork(work);
    case "output":
      for (const output of signal.lines) {
        if (output.kind === "line") onLine(work, output);
        else onOtherOutput(work, output, signal.lineLimitBytes);
      }
      return finishWork(work);
    case "spawned":
      onSpawned(work, signal);
      return finishWork(work);
    case "exited":
      return finishWork(work, onExit(work, signal.exit));
    case "recovered":
      onRecovered(work, signal.jumped);
      return finishWork(work);
    case "request_due":
      expireRequest(work, signal.requestId);
      return finishWork(work);
    case "control_due":
      timeOutControl(work, signal.requestId);
      return finishWork(work);
    case "register":
      onRegister(work, signal);
      return finishWork(work);
    case "unregister":
      onUnregister(work, signal.connectionId);
      return finishWork(work);
    case "owner_due":
      onOwnerDue(work, signal.owner, signal.awaySinceMs);
      return finishWork(work);
    case "end":
      onEnd(work);
      return finishWork(work);
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
