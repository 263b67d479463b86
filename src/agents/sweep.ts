import { readFileSync } from "node:fs";
import { findCgroup } from "./cgroup.ts";
import { waitUntil } from "./process-group.ts";
import { groupMembers, isGroupAlive, readProcess, signalGroup } from "./process-table.ts";

/** Tells a process apart from every other that ever had, or will have, its pid. */
export interface ProcessIdentity {
  readonly pid: number;
  /** Opaque: the start in clock ticks, and which boot they count from. */
  readonly startTime: string;
}

/** undefined when there is no such process, or this system has no /proc. */
export function identity(pid: number): ProcessIdentity | undefined {
  const entry = readProcess(pid);
  const boot = bootId();
  return entry === undefined || boot === undefined ? undefined : { pid, startTime: `${entry.startTicks}@${boot}` };
}

/**
 * Kills what is left of an agent whose server crashed: its process group and its cgroup. A process that got the same pid
 * later is never touched. Resolves when all is gone. Does nothing where there is no /proc.
 */
export async function sweep({ pid, startTime }: ProcessIdentity): Promise<void> {
  const [ticks, boot] = startTime.split("@");
  if (boot === undefined || boot !== bootId()) return;
  const startTicks = Number(ticks);
  const cgroup = findCgroup(pid, startTicks);
  const isGroupOurs = isOurs(pid, startTicks);
  if (isGroupOurs) signalGroup(pid, "SIGKILL");
  cgroup?.kill();
  await waitUntil(() => !(isGroupOurs && isGroupAlive(pid)) && cgroup?.isPopulated() !== true);
  cgroup?.remove();
}

/**
 * The leader is known by pid and start time. Where only its children are left (a CLI ends at EOF, its shells do not), the
 * kernel gives nobody that pid while they live, so members of that group and session are its own.
 */
function isOurs(pid: number, startTicks: number): boolean {
  const leader = readProcess(pid);
  if (leader !== undefined) return leader.startTicks === startTicks && leader.group === pid;
  const members = groupMembers(pid);
  return members.length > 0 && members.every((member) => member.session === pid && member.startTicks >= startTicks);
}

function bootId(): string | undefined {
  try {
    return readFileSync("/proc/sys/kernel/random/boot_id", "utf8").trim();
  } catch {
    return undefined;
  }
}
