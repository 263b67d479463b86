import { readdirSync, readFileSync, realpathSync } from "node:fs";
import { join } from "node:path";
import { waitUntil } from "../process-group.ts";
import { isAlive, readProcess } from "../process-table.ts";

/** One that starts others faster than it can be found is given up on. */
const LOOKS_LIMIT = 20;

/**
 * Ends every process whose HOME is a session's of this data directory. What a killed runner had not written down yet, and what an agent
 * had put into a session of its own where there are no cgroups, is found by this. Only while no other runner can own agents there.
 */
export function sweepHomes(dataDir: string): Promise<void> {
  return endUntilNone(() => processesAtHome(dataDir));
}

/** Kills what a look finds, and looks again: what was killed may have started others in between. */
export async function endUntilNone(look: () => readonly number[]): Promise<void> {
  for (let looks = 0; looks < LOOKS_LIMIT; looks++) {
    const pids = look();
    if (pids.length === 0) return;
    for (const pid of pids) {
      try {
        process.kill(pid, "SIGKILL");
      } catch {
        // It has ended in between.
      }
    }
    await waitUntil(() => pids.every((pid) => !runs(pid)));
  }
}

/** Empty where there is no /proc. */
function processesAtHome(dataDir: string): number[] {
  let home: string;
  let names: string[];
  try {
    home = `HOME=${join(realpathSync(dataDir), "homes")}/`;
    names = readdirSync("/proc");
  } catch {
    return [];
  }
  const pids = names.filter((name) => /^\d+$/.test(name)).map(Number);
  return pids.filter((pid) => pid !== process.pid && environmentOf(pid).some((entry) => entry.startsWith(home)));
}

/** Empty for a process of another user, a zombie, and one that is gone. */
function environmentOf(pid: number): string[] {
  try {
    return readFileSync(`/proc/${pid}/environ`, "utf8").split("\0");
  } catch {
    return [];
  }
}

function runs(pid: number): boolean {
  const entry = readProcess(pid);
  return entry !== undefined && isAlive(entry);
}
