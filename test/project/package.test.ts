import { expect, test } from "vitest";
import { listTrackedFiles, readText } from "../kit/sources.ts";

interface Manifest {
  readonly dependencies: Record<string, string>;
  readonly devDependencies: Record<string, string>;
  readonly optionalDependencies: Record<string, string>;
  readonly allowScripts?: Record<string, boolean>;
}

interface Lock {
  readonly packages: Record<
    string,
    {
      readonly resolved?: string;
      readonly integrity?: string;
      readonly link?: boolean;
      readonly hasInstallScript?: boolean;
    }
  >;
}

function read(path: string): string {
  const text = readText(path);
  if (text === undefined) expect.fail(`${path} does not exist`);
  return text;
}

const manifest: Manifest = JSON.parse(read("package.json"));
const lock: Lock = JSON.parse(read("package-lock.json"));

/** "4.6.7", or an alias of a package at one: no range, tag, folder or address. */
const isExact = (version: string): boolean => /^(npm:@?[\w./-]+@)?\d+\.\d+\.\d+$/.test(version);

test("every dependency is pinned to one version", () => {
  const all = { ...manifest.dependencies, ...manifest.devDependencies, ...manifest.optionalDependencies };
  expect(Object.entries(all).filter(([, version]) => !isExact(version))).toEqual([]);
  expect(["^1.2.3", "1.x", "latest", "*", "file:../a", "npm:a@^1.2.3", ">=1.2.3"].filter(isExact)).toEqual([]);
});

test("the lock file names no download host and has an integrity for every package", () => {
  const packages = Object.entries(lock.packages).filter(([path, entry]) => path !== "" && !entry.link);
  expect(packages.length).toBeGreaterThan(50);
  expect(packages.filter(([, { resolved }]) => resolved !== undefined).map(([path]) => path)).toEqual([]);
  expect(packages.filter(([, { integrity }]) => integrity === undefined).map(([path]) => path)).toEqual([]);
});

test("allowScripts is committed and decides about every package that has an install script", () => {
  const withScript = Object.entries(lock.packages).filter(([, { hasInstallScript }]) => hasInstallScript === true);
  const undecided = withScript.map(([path]) => path.slice(path.lastIndexOf("node_modules/") + "node_modules/".length));
  expect(manifest.allowScripts).toBeDefined();
  expect(undecided.filter((name) => manifest.allowScripts?.[name] === undefined)).toEqual([]);
});

/** Words that only make sense on one machine. Put together here, so that this file does not contain them. */
const MACHINE_WORDS = new RegExp(
  [
    ["/wo", "rk/"],
    ["/fa", "rm/"],
    ["/home/", "[a-z]+/"],
    ["/tmp/(lab|research|stu", "dio)"],
    ["registry\\.n", "pm"],
    ["(deb|security)\\.deb", "ian"],
  ]
    .map((parts) => parts.join(""))
    .join("|"),
);

test("no tracked file names a machine's path or a registry's host", () => {
  expect(MACHINE_WORDS.test(["see /wo", "rk/main"].join(""))).toBe(true);
  const files = listTrackedFiles();
  expect(files).toContain("package.json");
  const isRecorded = (path: string): boolean => path.startsWith("test/transcripts/");
  const found = files.filter((path) => !isRecorded(path) && MACHINE_WORDS.test(readText(path) ?? ""));
  expect(found).toEqual([]);
});
