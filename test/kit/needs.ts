import { appendFileSync, existsSync } from "node:fs";
import { delimiter, join } from "node:path";

/** Programs that some tests need and a bare machine may lack, with the Debian package of each. */
const PROGRAMS = {
  chromium: { commands: ["chromium", "chromium-browser", "google-chrome"], debianPackage: "chromium" },
  bubblewrap: { commands: ["bwrap"], debianPackage: "bubblewrap" },
  tmux: { commands: ["tmux"], debianPackage: "tmux" },
} as const satisfies Record<string, { commands: readonly string[]; debianPackage: string }>;

export type Program = keyof typeof PROGRAMS;

/**
 * The path of a program on this machine, or undefined after a notice that names the command which installs it. Use it with
 * `test.skipIf(!path)`; `npm test` repeats the notice at its end, and with TEST_ALL=1 counts each skipped test as failed.
 */
export function needs(program: Program): string | undefined {
  const { commands, debianPackage } = PROGRAMS[program];
  const folders = (process.env.PATH ?? "").split(delimiter).filter((folder) => folder !== "");
  const found = commands
    .flatMap((command) => folders.map((folder) => join(folder, command)))
    .find((path) => existsSync(path));
  if (found === undefined) announce(program, debianPackage);
  return found;
}

function announce(program: Program, debianPackage: string): void {
  console.warn(`SKIPPED: ${program} is not installed. To run these tests: apt-get install -y ${debianPackage}`);
  // The runner (scripts/test.ts) collects what its worker processes lacked.
  const list = process.env.TEST_NEEDS_FILE;
  if (list !== undefined) appendFileSync(list, `${debianPackage}\n`);
}
