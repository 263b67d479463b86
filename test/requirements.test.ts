import { expect, test } from "vitest";
import { type GateInput, judgeRequirements, missingPromises } from "./kit/requirement-gate.ts";
import { readSources, readText } from "./kit/sources.ts";
import { REQUIREMENTS } from "./requirements.ts";

/** This file plants citations as strings; they prove nothing. */
const OWN = "requirements.test.ts";

test("every promise is proved by a test or declared a known gap, and PROTOCOL.md and the list agree", () => {
  const tests = readSources("test");
  tests.delete(OWN);
  expect(judgeRequirements({ requirements: REQUIREMENTS, tests, protocol: readText("PROTOCOL.md") })).toEqual([]);
});

test("each of the contract's nine promises is the source of at least one requirement", () => {
  expect(missingPromises(REQUIREMENTS, 9)).toEqual([]);
});

const judge = (requirements: GateInput["requirements"], testText: string, protocol: string | undefined): string[] =>
  judgeRequirements({ requirements, tests: new Map([["a.test.ts", testText]]), protocol });

const promise = { source: "contract 6.1", behaviour: "in order" };
const tagged = { source: "PROTOCOL.md 4.2", behaviour: "in order" };

test.each([
  ["an unproved promise", { "LOG-ORDER": promise }, "", "", ["LOG-ORDER is proved by no test"]],
  [
    "a citation in a comment",
    { "LOG-ORDER": promise },
    '// verifies("LOG-ORDER", "x", f)',
    "",
    ["LOG-ORDER is proved by no test"],
  ],
  [
    "an id nobody named",
    { "LOG-ORDER": promise },
    'verifies("LOG-ORDER", "x", f); verifies("LOG-ODER", "x", f)',
    "",
    ["a.test.ts cites LOG-ODER"],
  ],
  [
    "a gap that was closed",
    { "LOG-ORDER": { ...promise, knownGap: "later" } },
    'verifies("LOG-ORDER", "x", f)',
    "",
    ["remove the knownGap"],
  ],
  ["a gap without a reason", { "LOG-ORDER": { ...promise, knownGap: " " } }, "", "", ["without a reason"]],
  [
    "a tag nobody named",
    { "LOG-ORDER": promise },
    'verifies("LOG-ORDER", "x", f)',
    "**[LOG-GAP]** says so.",
    ["PROTOCOL.md promises [LOG-GAP]"],
  ],
  [
    "a source without its tag",
    { "LOG-ORDER": tagged },
    'verifies("LOG-ORDER", "x", f)',
    "nothing",
    ["has no **[LOG-ORDER]**"],
  ],
  [
    "a tag set twice",
    { "LOG-ORDER": tagged },
    'verifies("LOG-ORDER", "x", f)',
    "**[LOG-ORDER]** **[LOG-ORDER]**",
    ["tags [LOG-ORDER] twice"],
  ],
  [
    "no PROTOCOL.md",
    { "LOG-ORDER": promise },
    'verifies("LOG-ORDER", "x", f)',
    undefined,
    ["PROTOCOL.md does not exist"],
  ],
  ["no promise at all", {}, "", "", ["names no promise"]],
  ["an odd id", { logOrder: promise }, 'verifies("logOrder", "x", f)', "", ["logOrder is not an id"]],
])("the gate reports %s", (_what, requirements, testText, protocol, words) => {
  expect(judge(requirements, testText, protocol)).toEqual(words.map((part) => expect.stringContaining(part)));
});

test("the gate accepts a proved promise, a citation over two lines, and a declared gap", () => {
  const requirements = { "LOG-ORDER": tagged, "LOG-GAP": { ...tagged, knownGap: "retention comes later" } };
  expect(
    judge(requirements, 'verifies(\n  "LOG-ORDER",\n  "in order", f)', "**[LOG-ORDER]** a\n**[LOG-GAP]** b"),
  ).toEqual([]);
});

test("promise 1 is not taken for promise 10", () => {
  expect(missingPromises({ "A-B": { source: "contract 6.10", behaviour: "" } }, 1)).toEqual([1]);
});
