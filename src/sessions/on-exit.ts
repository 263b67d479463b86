import type { AgentExit } from "../agents/port.ts";
import type { FailureReason } from "../protocol/events.ts";
import { failure } from "./controls.ts";
import { wake } from "./on-command.ts";
import { loseRequests } from "./requests.ts";
import { failTurns } from "./turns.ts";
import { change, speakForAgent, tell, type Work } from "./work.ts";

/** Exits in a row, without a finished turn between them, after which the session fails instead of starting again. */
const CRASH_LIMIT = 3;

const unfinished = (work: Work): string[] => work.state.turns.map((turn) => turn.turnId);
const queued = (work: Work): string[] => work.state.queue.map((turn) => turn.turnId);

/** Closes everything that waited for the process: requests, control_requests, turns that it had. */
function closeAll(work: Work, reason: FailureReason, message: string, controlError: string): void {
  loseRequests(work);
  for (const { requestId, commandId } of work.state.pending) {
    speakForAgent(work, failure(requestId, controlError), { command_id: commandId });
  }
  failTurns(work, reason, message, unfinished(work));
  const { pastCostUsd, processCostUsd, turns } = work.state.usage;
  const { process: _gone, ...rest } = work.state;
  work.state = {
    ...rest,
    pending: [],
    held: [],
    background: [],
    initialized: undefined,
    streaming: undefined,
    usage: { pastCostUsd: pastCostUsd + processCostUsd, processCostUsd: 0, turns },
  };
  work.edge = "end";
}

function exitText(exit: AgentExit): string {
  if (exit.spawnError !== undefined) return `The agent could not be started: ${exit.spawnError}.`;
  const how = exit.signal === null ? `with exit code ${exit.code}` : `by ${exit.signal}`;
  const tail = exit.stderrTail.trim();
  return `The agent ended ${how}.${tail === "" ? "" : ` Its last words: ${tail.slice(-2000)}`}`;
}

/** The process and its group are gone. Returns the reason for the state that follows, if there is one to give. */
export function onExit(work: Work, exit: AgentExit): string | undefined {
  const { phase } = work.state;
  const text = exitText(exit);
  const tail = exit.stderrTail === "" ? {} : { stderr_tail: exit.stderrTail };
  tell(work, "agent.exited", { code: exit.code, signal: exit.signal, how: exit.how, ...tail }, work.state.current);
  const ending = phase.name === "stopping";
  closeAll(
    work,
    ending ? "session_ended" : "agent_exited",
    ending ? "The session was ended." : text,
    ending ? "session ended" : text,
  );
  if (ending) return finishEnd(work);
  const crashes = exit.code === 0 ? 0 : work.state.crashes + 1;
  change(work, { crashes });
  if (phase.name === "starting" || crashes >= CRASH_LIMIT) {
    failTurns(work, "agent_start_failed", text, queued(work));
    change(work, { phase: { name: "failed", reason: text } });
    return text;
  }
  change(work, { phase: { name: "hibernated" } });
  // Messages that the dead process never got are run by the next one.
  if (work.state.queue.length > 0) wake(work);
  return undefined;
}

function finishEnd(work: Work): undefined {
  failTurns(work, "session_ended", "The session was ended.", queued(work));
  change(work, { phase: { name: "ended" } });
}

/** DELETE: an agent is stopped first; without one the session ends at once. */
export function onEnd(work: Work): void {
  switch (work.state.phase.name) {
    case "ended":
    case "stopping":
      return;
    case "starting":
    case "live":
      change(work, { phase: { name: "stopping", since: work.now } });
      work.lifecycle = "stop";
      return;
    case "hibernated":
    case "failed":
      finishEnd(work);
  }
}

/** A server opened the session after another one's end: the agent of an inline runner went with it (design 3, 5). */
export function onRecovered(work: Work, jumped: boolean): void {
  const hadAgent = work.state.phase.name === "live";
  if (!hadAgent && !jumped) return;
  const message = "The server was restarted while the agent worked.";
  tell(work, "session.recovered", { reason: message });
  closeAll(work, "server_restarted", message, "outcome_unknown");
  if (!hadAgent) return;
  change(work, { phase: { name: "hibernated" } });
  if (work.state.queue.length > 0) wake(work);
}
