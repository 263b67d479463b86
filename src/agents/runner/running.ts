import { readdirSync } from "node:fs";
import { waitUntil } from "../process-group.ts";
import { isAlive, readProcess } from "../process-table.ts";
import { identity } from "../sweep.ts";
import { readRunnerInfo, runnerFolder } from "./runner-folder.ts";

/** The local runner of a data directory, as it is found from outside. */
export interface RunningRunner {
  readonly pid: number;
  readonly version: string;
  /** Agents that live. */
  readonly agents: number;
}

/** undefined when none runs; what a killed one wrote about itself does not count. */
export function findLocalRunner(dataDir: string): RunningRunner | undefined {
  const folder = runnerFolder(dataDir);
  const info = readRunnerInfo(folder);
  if (info === undefined || !isRunning(info.pid, info.startTime)) return undefined;
  return { pid: info.pid, version: info.version, agents: countAgents(folder.agents) };
}

/** How a runner was stopped. */
export interface StoppedRunner extends RunningRunner {
  /** False when it was still there after the longest time that a stop takes. */
  readonly isGone: boolean;
}

/** A runner ends 10 s after SIGTERM at the latest; each wait is 5 s at most. */
const WAITS = 3;

/** SIGTERM: agents end by the ladder, then the runner does. undefined when none runs. */
export async function stopLocalRunner(dataDir: string): Promise<StoppedRunner | undefined> {
  const info = readRunnerInfo(runnerFolder(dataDir));
  const running = findLocalRunner(dataDir);
  if (running === undefined || info === undefined) return undefined;
  process.kill(running.pid, "SIGTERM");
  const isGone = (): boolean => !isRunning(info.pid, info.startTime);
  for (let waits = 0; waits < WAITS && !isGone(); waits++) await waitUntil(isGone);
  return { ...running, isGone: isGone() };
}

/** Where there is no /proc, a process of that pid is believed to be the one. */
function isRunning(pid: number, startTime: string): boolean {
  const entry = readProcess(pid);
  if (entry !== undefined) return isAlive(entry) && identity(pid)?.startTime === startTime;
  if (startTime !== "") return false;
  try {
    process.kill(pid, 0);
    return true;
  } catch {
    return false;
  }
}

function countAgents(folder: string): number {
  try {
    return readdirSync(folder).length;
  } catch {
    return 0;
  }
}
