/**
 * Builds dist/ from src/: tsc for the code and its declarations, a plain copy for everything else. `npm ci` runs it (prepare),
 * and so does the first `npx patchbay` in a checkout, because npm links the checkout into its cache for that.
 */
import { spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import { chmodSync, cpSync, existsSync, readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";

const root = join(import.meta.dirname, "..");
const source = join(root, "src");
const output = join(root, "dist");
const compiler = join(root, "node_modules/typescript/bin/tsc");
const stampPath = join(root, "node_modules/.patchbay-build");

/** One hash over everything that dist/ is made from. */
function fingerprint(): string {
  const files = readdirSync(source, { recursive: true, withFileTypes: true }).filter((entry) => entry.isFile());
  const paths = files.map((entry) => join(entry.parentPath, entry.name)).sort();
  const hash = createHash("sha256");
  for (const path of [
    ...paths,
    join(root, "tsconfig.json"),
    join(root, "tsconfig.build.json"),
    join(root, "package-lock.json"),
  ]) {
    hash.update(path).update("\0").update(readFileSync(path)).update("\0");
  }
  return hash.digest("hex");
}

/** Compiles and copies into a folder of its own, then swaps it in, so that a running command never sees half a dist/. */
function build(): void {
  const stamp = fingerprint();
  const fresh = `${output}.next-${process.pid}`;
  const run = spawnSync(process.execPath, [compiler, "-p", "tsconfig.build.json", "--outDir", fresh], {
    cwd: root,
    stdio: "inherit",
  });
  if (run.status !== 0) {
    rmSync(fresh, { recursive: true, force: true });
    process.exit(run.status ?? 1);
  }
  cpSync(source, fresh, { recursive: true, filter: (path) => !path.endsWith(".ts") });
  // npm makes a package's command executable where it installs it; in a checkout nobody but us does.
  const command = join(fresh, "cli.js");
  if (existsSync(command)) chmodSync(command, 0o755);

  const old = `${output}.old-${process.pid}`;
  if (existsSync(output)) renameSync(output, old);
  renameSync(fresh, output);
  rmSync(old, { recursive: true, force: true });
  writeFileSync(stampPath, stamp);
}

function isUpToDate(): boolean {
  return existsSync(output) && existsSync(stampPath) && readFileSync(stampPath, "utf8") === fingerprint();
}

const preparing = process.env.npm_lifecycle_event === "prepare";
if (preparing && !existsSync(compiler)) {
  // An install without development packages has no compiler and brings its own dist/.
  console.log("patchbay: no compiler installed, dist/ is left as it is");
} else if (!preparing || !isUpToDate()) {
  build();
}
