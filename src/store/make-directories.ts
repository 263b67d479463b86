import { existsSync, mkdirSync } from "node:fs";
import { dirname } from "node:path";

/**
 * `mkdir -p`, one level after the other: node's own `recursive` never returns where the system has no such folder and will not make it
 * (`/proc/x`). @throws the system's error
 */
export function makeDirectories(path: string, mode: number): void {
  if (existsSync(path)) return;
  makeDirectories(dirname(path), mode);
  mkdirSync(path, { mode });
}
