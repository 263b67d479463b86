import { join } from "node:path";
import { defineConfig } from "vitest/config";

/** Node keeps compiled code there, by content. */
const NODE_COMPILE_CACHE = join(import.meta.dirname, "node_modules/.cache/node-compile");

/** One vitest project. Projects run one after the other, in the order of `position`; within one, files run side by side. */
const project = (
  name: string,
  position: number,
  include: readonly string[],
  testTimeout: number,
  extra: { fileParallelism?: boolean } = {},
) => ({
  test: {
    name,
    include: [...include],
    pool: "forks" as const,
    testTimeout,
    // Files spend much of their time waiting: left alone, vitest would use one of two cores.
    maxWorkers: 2,
    hookTimeout: 30_000,
    sequence: { groupOrder: position },
    // Servers, runners and commands that tests start halve their start by it.
    env: { NODE_COMPILE_CACHE },
    ...extra,
  },
});

/** test/project/projects.test.ts holds every test file against these. */
export const PROJECTS = [
  // No server: pure functions, files, processes.
  project(
    "unit",
    0,
    [
      "test/{protocol,store,log,agents,auth,sessions,transport,webhooks,demo,client,project}/**/*.test.ts",
      "test/chaos/checker.test.ts",
      "test/*.test.ts",
    ],
    15_000,
  ),
  // A real server on port 0 with the fake agent.
  project("server", 1, ["test/{api,server,cli,compat}/**/*.test.ts", "test/chaos/{run,leaks}.test.ts"], 30_000),
  // What PROTOCOL.md promises, seen from outside.
  project("conformance", 2, ["test/conformance/**/*.test.ts"], 60_000),
  // The real CLI and a real browser, one file at a time.
  project("e2e", 3, ["test/e2e/**/*.test.ts"], 120_000, { fileParallelism: false }),
];

export default defineConfig({ test: { projects: PROJECTS } });
