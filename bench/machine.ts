import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { availableParallelism, cpus, loadavg, release, totalmem } from "node:os";

/** What a reader must know about the machine to judge the numbers. */
export interface Machine {
  readonly cpu: string;
  readonly cores: number;
  readonly memoryGib: number;
  readonly system: string;
  readonly node: string;
  readonly sqlite: string;
  readonly load: readonly number[];
}

export function describeMachine(): Machine {
  return {
    cpu: cpus()[0]?.model ?? "unknown",
    cores: availableParallelism(),
    memoryGib: Math.round(totalmem() / 2 ** 30),
    system: `${process.platform} ${release().split(".").slice(0, 2).join(".")} ${process.arch}`,
    node: process.versions.node,
    sqlite: process.versions.sqlite ?? "unknown",
    load: loadavg(),
  };
}

const read = (path: string): string | undefined => {
  try {
    return readFileSync(path, "latin1");
  } catch {
    return undefined;
  }
};

/** Clock ticks of /proc, which the kernel counts in hundredths of a second for user space everywhere that we run. */
const TICK_MICROS = 10_000;

/** CPU time of a server's children (its agent), user and system. Undefined where there is no /proc. */
export function agentCpuMicros(serverPid: number): number | undefined {
  const children = read(`/proc/${serverPid}/task/${serverPid}/children`);
  if (children === undefined) return undefined;
  const ticks = children
    .trim()
    .split(" ")
    .map((pid) => {
      // The name, in brackets, may hold spaces; after it utime and stime are the 12th and 13th field.
      const fields = read(`/proc/${pid}/stat`)?.split(") ").at(-1)?.split(" ") ?? [];
      return Number(fields[11] ?? 0) + Number(fields[12] ?? 0);
    });
  return ticks.reduce((total, count) => total + count, 0) * TICK_MICROS;
}

/** CPU time of the whole machine: used (stolen by other machines included), and all that there was. Undefined where there is no /proc. */
export function machineCpuMicros(): { readonly busy: number; readonly total: number } | undefined {
  const line = read("/proc/stat")?.split("\n")[0];
  if (line === undefined) return undefined;
  const [user = 0, nice = 0, system = 0, idle = 0, wait = 0, irq = 0, softirq = 0, steal = 0] = line
    .split(/\s+/)
    .slice(1)
    .map(Number);
  const busy = user + nice + system + irq + softirq + steal;
  return { busy: busy * TICK_MICROS, total: (busy + idle + wait) * TICK_MICROS };
}

/** The first C compiler there is, or undefined. */
export function findCompiler(): string | undefined {
  return ["cc", "gcc", "clang"].find((name) => {
    try {
      execFileSync(name, ["--version"], { stdio: "ignore" });
      return true;
    } catch {
      return false;
    }
  });
}
