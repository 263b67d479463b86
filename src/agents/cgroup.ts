import { existsSync, mkdirSync, readFileSync, rmdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";

/** A cgroup v2 folder around one agent. Unlike its process group, a child that calls setsid cannot leave it. */
export interface AgentCgroup {
  /** SIGKILL to everything inside. */
  kill(): void;
  /** False when only zombies or nothing are left. */
  isPopulated(): boolean;
  /** Removes the folder; a folder that is still in use stays. */
  remove(): void;
}

let parentFolder: string | undefined;
let parentTested = false;

/** Puts a process, and with it its future children, into a cgroup of its own. undefined where that is not possible. */
export function enterCgroup(pid: number, startTicks: number): AgentCgroup | undefined {
  const parent = usableParent();
  if (parent === undefined) return undefined;
  const folder = join(parent, cgroupName(pid, startTicks));
  try {
    mkdirSync(folder);
    writeFileSync(join(folder, "cgroup.procs"), String(pid));
    return agentCgroup(folder);
  } catch {
    agentCgroup(folder).remove();
    return undefined;
  }
}

/** The cgroup that an earlier server made for this process, if it is still there. */
export function findCgroup(pid: number, startTicks: number): AgentCgroup | undefined {
  const parent = usableParent();
  const folder = parent === undefined ? undefined : join(parent, cgroupName(pid, startTicks));
  return folder !== undefined && existsSync(folder) ? agentCgroup(folder) : undefined;
}

/** The name is made of the leader's identity, so that a later server finds it without having written it down. */
function cgroupName(pid: number, startTicks: number): string {
  return `patchbay-agent-${pid}-${startTicks}`;
}

function agentCgroup(folder: string): AgentCgroup {
  return {
    kill() {
      try {
        writeFileSync(join(folder, "cgroup.kill"), "1");
      } catch {
        // The folder is gone, and with it everything that was inside.
      }
    },
    isPopulated() {
      try {
        return /^populated 1$/m.test(readFileSync(join(folder, "cgroup.events"), "utf8"));
      } catch {
        return false;
      }
    },
    remove() {
      try {
        rmdirSync(folder);
      } catch {
        // Best effort: an empty cgroup that stays costs a folder name, no process.
      }
    },
  };
}

/** Where cgroups can be made: under the server's own, so that limits on the server hold for its agents too. Tested once. */
function usableParent(): string | undefined {
  if (!parentTested) {
    parentTested = true;
    parentFolder = findParent();
  }
  return parentFolder;
}

function findParent(): string | undefined {
  if (process.platform !== "linux") return undefined;
  try {
    const own = /^0::(\/.*)$/m.exec(readFileSync("/proc/self/cgroup", "utf8"))?.[1];
    const mount = /^\S+ \S+ \S+ \/ (\S+) .* - cgroup2 /m.exec(readFileSync("/proc/self/mountinfo", "utf8"))?.[1];
    if (own === undefined || mount === undefined || own.includes("..")) return undefined;
    const parent = join(mount, own);
    const trial = join(parent, `patchbay-trial-${process.pid}`);
    mkdirSync(trial);
    try {
      return existsSync(join(trial, "cgroup.kill")) ? parent : undefined;
    } finally {
      rmdirSync(trial);
    }
  } catch {
    return undefined;
  }
}
