/**
 * `npm test [-- vitest arguments]`: the static checks, then every vitest project, then one line with the count.
 * `--fast` leaves out what starts the real CLI or a browser. TEST_ALL=1 turns every skipped test into a failure.
 */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Count } from "./tests/count-reporter.ts";

const root = join(import.meta.dirname, "..");
const given = process.argv.slice(2);
const fast = given.includes("--fast");
const forVitest = given.filter((argument) => argument !== "--fast");
const mustRunAll = process.env.TEST_ALL === "1";

/** Runs a program of node_modules on this Node, its output going straight to the terminal. True when it exits with 0. */
async function succeeds(
  title: string,
  script: string,
  args: readonly string[],
  env: Record<string, string> = {},
): Promise<boolean> {
  console.log(`\n== ${title}`);
  const started = performance.now();
  const child = spawn(script, args, { cwd: root, stdio: "inherit", env: { ...process.env, ...env } });
  const [code] = await once(child, "exit");
  console.log(`== ${title}: ${code === 0 ? "ok" : "FAILED"} in ${((performance.now() - started) / 1000).toFixed(1)} s`);
  return code === 0;
}

/** The reporter's count, or one failure when vitest died before it could write it. */
function readCount(path: string): Count {
  return existsSync(path) ? JSON.parse(readFileSync(path, "utf8")) : { passed: 0, failed: 1, skipped: [] };
}

function readPackages(path: string): string[] {
  return existsSync(path) ? [...new Set(readFileSync(path, "utf8").split("\n").filter(Boolean))].sort() : [];
}

function listSkipped(skipped: readonly string[], packages: readonly string[]): void {
  if (skipped.length === 0) return;
  console.log(`\nSKIPPED${mustRunAll ? " (TEST_ALL=1: each counts as failed)" : ""}:`);
  for (const name of skipped) console.log(`  ${name}`);
  if (packages.length > 0) console.log(`To run them: apt-get install -y ${packages.join(" ")}`);
}

async function main(): Promise<boolean> {
  const scratch = mkdtempSync(join(tmpdir(), "patchbay-test-"));
  try {
    const countFile = join(scratch, "count.json");
    const needsFile = join(scratch, "needs.txt");
    const checked = await succeeds("check", "npm", ["run", "--silent", "check"]);
    const projects = fast ? ["--project", "unit", "--project", "server"] : [];
    const reporters = ["--reporter=default", "--reporter=./scripts/tests/count-reporter.ts"];
    const vitest = [join(root, "node_modules/vitest/vitest.mjs"), "run", ...reporters, ...projects, ...forVitest];
    const env = { TEST_COUNT_FILE: countFile, TEST_NEEDS_FILE: needsFile };
    const tested = await succeeds("tests", process.execPath, vitest, env);

    const count = readCount(countFile);
    listSkipped(count.skipped, readPackages(needsFile));
    const refused = mustRunAll ? count.skipped.length : 0;
    // vitest may fail without a failed test, when it finds no file at all for instance.
    const failedTests = tested ? count.failed : Math.max(count.failed, 1);
    const failed = failedTests + refused + (checked ? 0 : 1);
    if (!checked) console.log("\n`npm run check` failed: it counts as one failure.");
    console.log(`\n${count.passed} passed, ${failed} failed, ${count.skipped.length - refused} skipped`);
    return failed === 0;
  } finally {
    rmSync(scratch, { recursive: true, force: true });
  }
}

process.exitCode = (await main()) ? 0 : 1;
