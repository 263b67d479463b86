import { execFileSync } from "node:child_process";
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join, relative, sep } from "node:path";

/** The checkout that these tests are part of. */
export const REPOSITORY = join(import.meta.dirname, "../..");

/** TypeScript files below a folder of the repository: path from that folder, with `/`, to text. A missing folder is empty. */
export function readSources(folder: string): Map<string, string> {
  const base = join(REPOSITORY, folder);
  if (!existsSync(base)) return new Map();
  const entries = readdirSync(base, { recursive: true, withFileTypes: true });
  const paths = entries
    .filter((entry) => entry.isFile() && entry.name.endsWith(".ts"))
    .map((entry) => join(entry.parentPath, entry.name));
  return new Map(paths.sort().map((path) => [relative(base, path).split(sep).join("/"), readFileSync(path, "utf8")]));
}

/** A file of the repository as text, or undefined when it does not exist. */
export function readText(path: string): string | undefined {
  const full = join(REPOSITORY, path);
  return existsSync(full) ? readFileSync(full, "utf8") : undefined;
}

/** Paths of all files that git tracks or would track: everything but what .gitignore names. */
export function listTrackedFiles(): string[] {
  const list = execFileSync("git", ["ls-files", "-z", "--cached", "--others", "--exclude-standard"], {
    cwd: REPOSITORY,
    encoding: "utf8",
  });
  return list.split("\0").filter((path) => path !== "" && existsSync(join(REPOSITORY, path)));
}
