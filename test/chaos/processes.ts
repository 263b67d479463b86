import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";

function readProc(pid: number, name: string): string {
  try {
    return readFileSync(`/proc/${pid}/${name}`, "utf8");
  } catch {
    return "";
  }
}

/** Whether that process belongs to the run whose files are in `folder`: a pid may have come to be somebody else's. */
function belongsTo(pid: number, folder: string): boolean {
  return readProc(pid, "environ").includes(folder) || readProc(pid, "cmdline").includes(folder);
}

const allPids = (): number[] =>
  readdirSync("/proc")
    .filter((name) => /^\d+$/.test(name))
    .map(Number);

/** Living processes that name the folder in their arguments or environment. */
export function processesOf(folder: string): string[] {
  return allPids()
    .filter((pid) => pid !== process.pid && belongsTo(pid, folder))
    .map((pid) => `process ${pid}: ${readProc(pid, "cmdline").replaceAll("\0", " ").slice(0, 200)}`);
}

/** Children of these processes that have ended and that nobody has waited for. */
export function zombiesOf(parents: readonly number[]): string[] {
  return allPids().flatMap((pid) => {
    const stat = readProc(pid, "stat");
    const [state, parent] = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
    return state === "Z" && parents.includes(Number(parent)) ? [`zombie ${pid} of ${parent}`] : [];
  });
}

/** Open file descriptors; 0 when the process is gone. */
export function countDescriptors(pid: number): number {
  try {
    return readdirSync(`/proc/${pid}/fd`).length;
  } catch {
    return 0;
  }
}

/** Sockets below the folder. */
export function socketsBelow(folder: string): string[] {
  return readdirSync(folder, { withFileTypes: true, recursive: true })
    .filter((entry) => entry.isSocket())
    .map((entry) => `socket ${join(entry.parentPath, entry.name)}`);
}
