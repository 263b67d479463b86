import { setTimeout as delay } from "node:timers/promises";
import { enterCgroup } from "./cgroup.ts";
import { isGroupAlive, readProcess, signalGroup } from "./process-table.ts";

/** SIGKILL works at once, except on a process that hangs in the kernel; nobody can wait for that one. */
const GONE_PATIENCE_MS = 5000;

/** An agent's process and everything that it started. */
export interface ProcessGroup {
  /** SIGKILL to all of it. */
  kill(): void;
  /** Resolves when nothing of it runs any more, or after a bounded wait; then its cgroup is removed. */
  gone(): Promise<void>;
}

/** Takes charge of a process that leads its own group (`detached`). Called right after the start, before it has children. */
export function createProcessGroup(leader: number): ProcessGroup {
  const entry = readProcess(leader);
  const cgroup = entry === undefined ? undefined : enterCgroup(leader, entry.startTicks);
  return {
    kill() {
      signalGroup(leader, "SIGKILL");
      cgroup?.kill();
    },
    async gone() {
      await waitUntil(() => !isGroupAlive(leader) && cgroup?.isPopulated() !== true);
      cgroup?.remove();
    },
  };
}

/** Polls, since the end of somebody else's children is no event. Gives up in the end. */
export async function waitUntil(isGone: () => boolean): Promise<void> {
  const giveUpAtMs = performance.now() + GONE_PATIENCE_MS;
  for (let pauseMs = 1; !isGone() && performance.now() < giveUpAtMs; pauseMs = Math.min(pauseMs * 2, 50)) {
    await delay(pauseMs);
  }
}
