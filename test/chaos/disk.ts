import { execFileSync } from "node:child_process";
import { mkdirSync } from "node:fs";
import { join } from "node:path";

/** The disk of a data directory, which can be full. */
export interface Disk {
  /** A folder on it. */
  readonly path: string;
  /** How it is made full: a small tmpfs; a limit on the size of files that the server writes; or not at all. */
  readonly kind: "tmpfs" | "quota" | "never full";
  /** From now on next to nothing more can be written. */
  fill(serverPid: number): void;
  free(serverPid: number): void;
  /** Unmounts it. */
  remove(): void;
}

const SIZE_KIB = 2 * 1024 * 1024;

const runs = (command: string, ...args: string[]): boolean => {
  try {
    execFileSync(command, args, { stdio: "ignore" });
    return true;
  } catch {
    return false;
  }
};

/** A tmpfs where this user may mount one, else a quota where util-linux is there. */
export function makeDisk(folder: string): Disk {
  const path = join(folder, "disk");
  mkdirSync(path);
  if (runs("mount", "-t", "tmpfs", "-o", `size=${SIZE_KIB}k`, "tmpfs", path)) {
    const remount = (size: number): boolean => runs("mount", "-o", `remount,size=${size}k`, path);
    return {
      path,
      kind: "tmpfs",
      fill() {
        const used = Number(execFileSync("df", ["-k", "--output=used", path]).toString().split("\n")[1]);
        // It may grow in between, and cannot be made smaller than it is.
        for (let room = 64; !remount(used + room); room *= 2);
      },
      free: () => void remount(SIZE_KIB),
      remove: () => void runs("umount", path),
    };
  }
  const limit = (pid: number, bytes: string): boolean => runs("prlimit", `--pid=${pid}`, `--fsize=${bytes}:unlimited`);
  const canLimit = runs("prlimit", "--version");
  return {
    path,
    kind: canLimit ? "quota" : "never full",
    fill: (pid) => void (canLimit && limit(pid, "65536")),
    free: (pid) => void (canLimit && limit(pid, "unlimited")),
    remove() {},
  };
}
