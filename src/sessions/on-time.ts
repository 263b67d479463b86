import { interruptTurns, wakeIfNeeded } from "./on-exit.ts";
import { hasAgent, isIdle } from "./state.ts";
import { failTurns } from "./turns.ts";
import { change, tell, type Work } from "./work.ts";

/** Idle for as long as it may be, or its place is needed: the process goes, the next message brings it back (design 5). */
export function onHibernate(work: Work): void {
  if (!isIdle(work.state)) return;
  change(work, { phase: { name: "stopping", since: work.now, cause: "hibernate" } });
  work.lifecycle = "stop";
}

/** The pause after a crash is over. */
export function onWakeDue(work: Work): void {
  const { phase } = work.state;
  if (phase.name !== "hibernated" || phase.wakeAtMs === undefined || phase.wakeAtMs > work.now) return;
  change(work, { phase: { name: "hibernated" } });
  wakeIfNeeded(work);
}

/** A turn runs and nothing has come for so long, although nobody is asked anything: said once for each silence. */
export function onSilent(work: Work, silentMs: number): void {
  const { phase, isAway, current, requests, stalled, retryUntilMs } = work.state;
  if (phase.name !== "live" || isAway || current === undefined || requests.length > 0 || stalled !== undefined) return;
  if (retryUntilMs > work.now) return;
  tell(work, "turn.stalled", { turn_id: current, silent_ms: silentMs, offers: ["interrupt", "restart"] }, current);
  change(work, { stalled: { turnId: current, interrupted: false } });
}

/** Somebody interrupted a stalled turn, and it has still not ended: the process is killed, the session goes on with another one. */
export function onStallDue(work: Work, turnId: string): void {
  const { phase, stalled } = work.state;
  if (phase.name !== "live" || stalled?.turnId !== turnId || !stalled.interrupted) return;
  change(work, { phase: { name: "stopping", since: work.now, cause: "stalled" } });
  work.lifecycle = "kill";
}

/** The process was to run a turn again and has not begun to: there was nothing left to run. */
export function onRerunDue(work: Work): void {
  if (!work.state.rerun || work.state.phase.name !== "live") return;
  const message = "The agent ended during the turn, and the next one found nothing to run again.";
  change(work, { rerun: false });
  failTurns(
    work,
    "agent_exited",
    message,
    work.state.turns.map((turn) => turn.turnId),
  );
}

/** The server goes, and the agent with it: its last chance to close a turn itself. */
export function onQuit(work: Work): void {
  interruptTurns(work);
}

/** What a start waits for, told with the state. */
export function onWaiting(work: Work, run: string, reason: string | undefined): void {
  const { phase } = work.state;
  if (phase.name !== "starting" || work.state.run !== run || phase.waiting === reason) return;
  const { waiting: _old, ...rest } = phase;
  change(work, { phase: { ...rest, ...(reason !== undefined && { waiting: reason }) } });
  tell(work, "session.state", { state: "starting", ...(reason !== undefined && { reason }) });
}

/** The link to the agent's runner broke, or is back. */
export function onAway(work: Work, isAway: boolean): void {
  if (work.state.isAway === isAway || !hasAgent(work.state)) return;
  change(work, { isAway });
  tell(work, isAway ? "agent.away" : "agent.back", {}, work.state.current);
}
