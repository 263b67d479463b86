import { wake } from "./on-command.ts";
import { closeControls, interruptTurns } from "./on-exit.ts";
import { withdrawTurn } from "./turns.ts";
import { change, type Work } from "./work.ts";

/** No agent until it is told otherwise: one that runs is stopped in order, and what waits for one goes on waiting, or is given up. */
export function onPark(work: Work, forgets: boolean): void {
  change(work, { parked: true });
  if (forgets) {
    for (const { turnId } of work.state.queue) withdrawTurn(work, turnId);
    closeControls(work, "The agent was shut down.", true);
  }
  const { phase } = work.state;
  if (phase.name !== "starting" && phase.name !== "live") return;
  interruptTurns(work);
  change(work, { phase: { name: "stopping", since: work.now, cause: "hibernate" } });
  work.lifecycle = "stop";
}

/** It may have an agent again, and gets it at once. */
export function onUnpark(work: Work): void {
  change(work, { parked: false });
  wake(work);
}
