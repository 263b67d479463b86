import fc from "fast-check";
import { expect, test } from "vitest";
import { decide } from "../../../src/auth/policy/decide.ts";
import { shellParts } from "../../../src/auth/policy/shell-parts.ts";
import type { Policy, PolicyQuestion } from "../../../src/protocol/policy.ts";
import { verifies } from "../../kit/verifies.ts";
import { ASKED, DENIED, PLAIN } from "./hostile-commands.ts";

const bash = (command: unknown, extra: Record<string, unknown> = {}): PolicyQuestion => ({
  kind: "permission",
  tool_name: "Bash",
  input: { command, ...extra },
  cwd: "/w/s1",
  mode: "default",
  version: "2.1.332",
});

const ALLOW = ["git status", "npm test *", "ls *"];
const DENY = ["rm *", "git push **", "curl *"];
const policy: Policy = {
  rules: [
    { id: "no", effect: "deny", command: DENY },
    { id: "yes", effect: "allow", command: ALLOW },
  ],
  default: "ask",
};
const verdict = (command: unknown, extra?: Record<string, unknown>): string =>
  decide({ tenant: policy }, bash(command, extra)).effect;

verifies("POLICY", "git status; rm -rf x is not git status: a hand-typed table of hostile command lines", () => {
  const expected = [
    ...PLAIN.map(([line, effect]) => ({ line, effect })),
    ...DENIED.map((line) => ({ line, effect: "deny" })),
    ...ASKED.map((line) => ({ line, effect: "ask" })),
  ];
  expect(expected.map(({ line }) => ({ line, effect: verdict(line) }))).toEqual(expected);
  expect(expected.length).toBeGreaterThan(150);
});

test("a deny is not so wide that it stops everything", () => {
  for (const line of [
    "echo rm",
    "git commit -m 'rm x'",
    "farm x",
    "echo $HOME",
    "warm > out",
    "git pull $X",
    "x=1; echo $x",
  ]) {
    expect({ line, effect: verdict(line) }).toEqual({ line, effect: "ask" });
  }
});

test("what is not a text, or too long to be taken apart, is never allowed and always caught", () => {
  for (const command of [undefined, null, 7, ["git status"], { a: 1 }, `git status${" ".repeat(40_000)}`]) {
    expect(verdict(command)).toBe("deny");
  }
});

test("a command that leaves the sandbox is another thing, unless the rule says so", () => {
  expect(verdict("git status", { dangerouslyDisableSandbox: true })).toBe("ask");
  expect(verdict("git status", { dangerouslyDisableSandbox: false, run_in_background: true })).toBe("allow");
  const meant: Policy = {
    rules: [{ id: "x", effect: "allow", command: ["ls"], input: { dangerouslyDisableSandbox: "true" } }],
    default: "ask",
  };
  expect(decide({ tenant: meant }, bash("ls", { dangerouslyDisableSandbox: true })).effect).toBe("allow");
});

test("a pattern for commands is for Bash only", () => {
  expect(decide({ tenant: policy }, { ...bash("rm x"), tool_name: "Monitor" }).effect).toBe("ask");
});

test("** stands for any number of words, * for one and at the end for any number", () => {
  const denies = (pattern: string, line: string): boolean =>
    decide({ tenant: { rules: [{ id: "x", effect: "deny", command: [pattern] }], default: "ask" } }, bash(line))
      .effect === "deny";
  expect(denies("git ** --force", "git push origin --force")).toBe(true);
  expect(denies("git ** --force", "git --force")).toBe(true);
  expect(denies("git ** --force", "git push origin")).toBe(false);
  expect(denies("git * --force", "git push --force")).toBe(true);
  expect(denies("git * --force", "git push origin --force")).toBe(false);
  expect(denies("git *", "git")).toBe(true);
  expect(denies("npm run test:*", "npm run test:unit")).toBe(true);
  expect(denies("npm run test:*", "npm run build")).toBe(false);
});

/** What a shell would do with it is known: no character of these means anything to it. */
const plainWord = fc.stringMatching(/^[A-Za-z0-9_.,:@%+-]{1,8}$/);
const quote = (text: string): string => `'${text.replaceAll("'", "'\\''")}'`;

test("plain words and single-quoted texts come out as they went in", () => {
  const text = fc.string({ unit: "grapheme-ascii", maxLength: 12 }).filter((value) => !value.includes("'"));
  const command = fc.array(fc.oneof(plainWord, text), { minLength: 1, maxLength: 5 });
  fc.assert(
    fc.property(
      fc.array(command, { minLength: 1, maxLength: 4 }),
      fc.constantFrom(";", "&&", "||", "|", "&", "\n"),
      (commands, separator) => {
        const line = commands.map((words) => words.map(quote).join(" ")).join(` ${separator} `);
        const { parts } = shellParts(line);
        expect(parts.map(({ words }) => words.map((word) => word.text))).toEqual(commands);
        expect(parts.every(({ words }) => words.every((word) => word.fixed))).toBe(true);
      },
    ),
  );
});

test("whatever stands beside a denied command, behind whatever separator, it is denied", () => {
  const beside = fc.string({ unit: "binary-ascii", maxLength: 30 });
  // An open quote or a backslash before the separator takes its meaning away; then the line is opaque, and its raw words count.
  fc.assert(
    fc.property(
      beside,
      fc.constantFrom(";", "&&", "||", "|", "&", "\n", "$(", "`", "("),
      beside,
      (before, separator, after) => {
        expect(verdict(`${before}${separator} rm -rf x ; ${after}`)).not.toBe("allow");
        if (!/['"\\=]/.test(before)) expect(verdict(`${before}${separator} rm -rf x ; ${after}`)).toBe("deny");
      },
    ),
    { numRuns: 2_000 },
  );
});

test("an allowed line consists of allowed commands only: adding any command to it is not allowed", () => {
  const line = fc.string({
    unit: fc.constantFrom(
      "g",
      "it ",
      "git status",
      "npm test",
      ";",
      "&",
      "|",
      "\n",
      "'",
      '"',
      "\\",
      "$",
      "(",
      " ",
      "ls",
      "#",
      ">",
    ),
    maxLength: 12,
  });
  fc.assert(
    fc.property(line, (text) => {
      const { parts, opaque } = shellParts(text);
      const first = parts.map(({ words }) => words.map((word) => word.text));
      // Word by word: `npm test" "` runs `test ` with a blank at its end, which is another command.
      const allowed = ([one, two, ...more]: readonly string[]): boolean =>
        (one === "git" && two === "status" && more.length === 0) || (one === "npm" && two === "test") || one === "ls";
      const wanted = !opaque && first.length > 0 && first.every(allowed);
      expect(verdict(text) === "allow").toBe(wanted);
      if (/[\\$(#>]/.test(text.replace(/'[^']*'/g, ""))) expect(verdict(text)).not.toBe("allow");
    }),
    { numRuns: 3_000 },
  );
});

test("a long hostile line takes no long time", () => {
  const many: Policy = {
    rules: Array.from({ length: 100 }, (_, index) => ({
      id: `r${index}`,
      effect: "deny" as const,
      command: ["** a* ** b* ** c* ** zz", `x${index} ** y`],
    })),
    default: "ask",
  };
  const startedMs = performance.now();
  expect(decide({ tenant: many }, bash(`${"a b c ".repeat(2_700)}> out`)).effect).toBe("ask");
  expect(performance.now() - startedMs).toBeLessThan(10_000);
});
