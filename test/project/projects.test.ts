import { matchesGlob } from "node:path";
import { expect, test } from "vitest";
import { PROJECTS } from "../../vitest.config.ts";
import { readSources } from "../kit/sources.ts";

const patterns = PROJECTS.map((project) => project.test.include);

/** Test files that not exactly one project runs: forgotten ones would be green for ever. */
const misplaced = (paths: readonly string[]): string[] =>
  paths.filter(
    (path) => patterns.filter((include) => include.some((pattern) => matchesGlob(path, pattern))).length !== 1,
  );

test("every test file belongs to exactly one vitest project", () => {
  const files = [...readSources("test").keys()]
    .filter((path) => path.endsWith(".test.ts"))
    .map((path) => `test/${path}`);
  expect(files).toContain("test/project/projects.test.ts");
  expect(misplaced(files)).toEqual([]);
  expect(misplaced(["test/nowhere/a.test.ts"])).toEqual(["test/nowhere/a.test.ts"]);
});
