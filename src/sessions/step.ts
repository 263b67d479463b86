import type { AgentExit, AgentOutput } from "../agents/port.ts";
import type { Command } from "../protocol/commands.ts";
import { onCommand } from "./on-command.ts";
import { onEnd, onExit, onRecovered } from "./on-exit.ts";
import { onLine, onOtherOutput } from "./on-line.ts";
import type { Snapshot, State } from "./state.ts";
import { change, finishWork, type Outcome, startWork, tell, type Work } from "./work.ts";

/** Everything that can happen to a session. */
export type Signal =
  | { readonly type: "command"; readonly command: Command; readonly actorId: string }
  | { readonly type: "output"; readonly lines: readonly AgentOutput[]; readonly lineLimitBytes: number }
  | {
      readonly type: "spawned";
      readonly pid: number;
      readonly process: Snapshot["process"];
      readonly resumed: boolean;
    }
  | { readonly type: "exited"; readonly exit: AgentExit }
  | { readonly type: "recovered"; readonly jumped: boolean }
  | { readonly type: "end" };

/** Where time and fresh ids come from; the step itself has no other input. */
export interface StepContext {
  readonly now: number;
  readonly newId: () => string;
}

/**
 * One step of a session: what becomes of its state, which events it appends, what goes to the agent's stdin once they are durable.
 * Pure: the same arguments give the same outcome. @throws BrokerError for a command that is refused; then nothing has happened
 */
export function step(state: State, signal: Signal, context: StepContext): Outcome {
  const work = startWork(state, context.now, context.newId);
  switch (signal.type) {
    case "command":
      onCommand(work, signal.command, signal.actorId);
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
  work.stdin.push({
    type: "control_request",
    request_id: phase.initializeId,
    request: { subtype: "initialize", hooks: null },
  });
}
