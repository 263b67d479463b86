import { readdirSync, readFileSync } from "node:fs";

/** What /proc says of a process (Linux). */
export interface ProcessEntry {
  readonly pid: number;
  /** One letter; Z and X are dead. */
  readonly state: string;
  readonly group: number;
  readonly session: number;
  /** Clock ticks since boot. */
  readonly startTicks: number;
}

/** undefined when there is no such process, or no /proc. */
export function readProcess(pid: number): ProcessEntry | undefined {
  let stat: string;
  try {
    stat = readFileSync(`/proc/${pid}/stat`, "latin1");
  } catch {
    return undefined;
  }
  // The second field is the name in parentheses, and a name may hold spaces and parentheses.
  const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
  const [state, , group, session] = fields;
  const startTicks = fields[19];
  if (state === undefined || startTicks === undefined) return undefined;
  return { pid, state, group: Number(group), session: Number(session), startTicks: Number(startTicks) };
}

/** Zombies count as dead: pid 1 of a container may take seconds to reap them. */
export function isAlive(entry: ProcessEntry): boolean {
  return entry.state !== "Z" && entry.state !== "X";
}

/** Living members of a process group. Without /proc, empty. */
export function groupMembers(group: number): ProcessEntry[] {
  let names: string[];
  try {
    names = readdirSync("/proc");
  } catch {
    return [];
  }
  return names
    .filter((name) => /^\d+$/.test(name))
    .map((name) => readProcess(Number(name)))
    .filter((entry) => entry !== undefined)
    .filter((entry) => entry.group === group && isAlive(entry));
}

/** Whether anything of the group still runs. */
export function isGroupAlive(group: number): boolean {
  // The signal test is one call, but counts zombies; only when it says yes is the table read.
  if (!signalGroup(group, 0)) return false;
  return process.platform === "linux" ? groupMembers(group).length > 0 : true;
}

/** False when there is no such group. A group of foreign processes (EPERM) exists, and is left alone. */
export function signalGroup(group: number, signal: NodeJS.Signals | 0): boolean {
  try {
    process.kill(-group, signal);
    return true;
  } catch (error) {
    return error instanceof Error && "code" in error && error.code === "EPERM";
  }
}
