import { test } from "vitest";

/** A test that proves the named requirement of test/requirements.ts; test/requirements.test.ts reads the ids from the sources. */
export function verifies(id: string, behaviour: string, body: () => Promise<void> | void, timeoutMs?: number): void {
  test(`[${id}] ${behaviour}`, body, timeoutMs);
}
