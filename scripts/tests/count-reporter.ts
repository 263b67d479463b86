import { writeFileSync } from "node:fs";
import type { Reporter } from "vitest/node";

/** What a whole vitest run came to. A test file that could not be loaded, and an error outside any test, count as failures. */
export interface Count {
  readonly passed: number;
  readonly failed: number;
  /** Full names, each with its file and the reason if one was given. */
  readonly skipped: readonly string[];
}

/** Writes the run's Count as JSON to the file named by TEST_COUNT_FILE, when vitest has finished. */
export default function countReporter(): Reporter {
  return {
    onTestRunEnd(modules, unhandledErrors) {
      let passed = 0;
      let failed = unhandledErrors.length;
      const skipped: string[] = [];
      for (const module of modules) {
        const tests = [...module.children.allTests()];
        for (const test of tests) {
          const result = test.result();
          if (result.state === "passed") passed++;
          else if (result.state === "failed") failed++;
          else
            skipped.push(
              `${module.relativeModuleId} > ${test.fullName}${result.state === "skipped" && result.note ? ` (${result.note})` : ""}`,
            );
        }
        // A file can fail without any of its tests failing: an import that throws, a hook, an empty file.
        if (module.state() === "failed" && !tests.some((test) => test.result().state === "failed")) failed++;
      }
      const path = process.env.TEST_COUNT_FILE;
      if (path !== undefined) writeFileSync(path, JSON.stringify({ passed, failed, skipped } satisfies Count));
    },
  };
}
