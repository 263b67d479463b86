import { expect, test } from "vitest";
import { describeConditions, describeRequest } from "../../src/cli/describe.ts";
import type { IncomingRequest } from "../../src/client/index.ts";

const request = (
  toolName: string,
  input: Record<string, unknown>,
  more: Partial<IncomingRequest> = {},
): IncomingRequest => ({ toolName, input, ...more }) as IncomingRequest;

test("an edit is shown as a diff, a new file whole, and a command in full", () => {
  expect(describeRequest(request("Edit", { file_path: "a.js", old_string: "one\ntwo", new_string: "three" }))).toBe(
    "    a.js\n    - one\n    - two\n    + three",
  );
  expect(describeRequest(request("Write", { file_path: "b.txt", content: "x\ny" }))).toBe(
    "    b.txt (whole file)\n    + x\n    + y",
  );
  expect(describeRequest(request("Bash", { command: "ls\nrm -rf x", timeout: 5 }))).toBe(
    "    command:\n        ls\n        rm -rf x\n    timeout: 5",
  );
});

test("what is hidden in an edit is made visible, and an unknown shape falls back to every value", () => {
  expect(describeRequest(request("Edit", { file_path: "a", old_string: "x", new_string: "\u001b[2Jy" }))).not.toContain(
    "\u001b",
  );
  expect(describeRequest(request("Edit", { file_path: "a", edits: [{ what: 1 }] }))).toContain('"what": 1');
});

test("conditions say who has approved and when it expires", () => {
  const conditions = describeConditions(
    request("Bash", {}, { approvals_needed: 2, approvals: [{ by: "key-a", at_ms: 1, input: "{}" }] }),
  );
  expect(conditions).toEqual(["Needs 2 people; approved so far by key-a."]);
  expect(describeConditions(request("Bash", {}))).toEqual([]);
});
