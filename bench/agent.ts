import { execFileSync } from "node:child_process";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { findCompiler } from "./machine.ts";

/** The program that the contenders start as their agent. */
export interface Agent {
  readonly path: string;
  /** How it came to be, for the report. */
  readonly kind: string;
}

/** Compiles generator.c into a folder, or makes a launcher for generator.ts where there is no compiler or it fails. */
export function buildAgent(dir: string): Agent {
  const compiler = findCompiler();
  const path = join(dir, "agent");
  if (compiler !== undefined) {
    try {
      execFileSync(compiler, ["-O2", "-o", path, join(import.meta.dirname, "generator.c")], { stdio: "ignore" });
      return { path, kind: `C, ${compiler} -O2` };
    } catch {
      // A compiler without a C library, say: the other generator does.
    }
  }
  // The agent's PATH may hold an older Node, so this one is named.
  const program = join(import.meta.dirname, "generator.ts");
  writeFileSync(path, `#!/bin/sh\nexec "${process.execPath}" "${program}" "$@"\n`, { mode: 0o755 });
  return { path, kind: "Node, blocks of 64 KiB" };
}
