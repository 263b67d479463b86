import fc from "fast-check";
import { expect, test } from "vitest";
import { decide } from "../../../src/auth/policy/decide.ts";
import { matchesGlob } from "../../../src/auth/policy/glob.ts";
import type { Policy, PolicyQuestion, PolicyRule } from "../../../src/protocol/policy.ts";
import { verifies } from "../../kit/verifies.ts";

const CWD = "/w/acme/s1";
const call = (tool_name: string, input: Record<string, unknown>): PolicyQuestion => ({
  kind: "permission",
  tool_name,
  input,
  cwd: CWD,
  mode: "default",
  version: "2.1.332",
});
const only = (rule: Omit<PolicyRule, "id">): Policy => ({ rules: [{ id: "r", ...rule }], default: "ask" });
const allows = (path: string[], question: PolicyQuestion): boolean =>
  decide({ tenant: only({ effect: "allow", tools: ["*"], path }) }, question).effect === "allow";
const denies = (path: string[], question: PolicyQuestion): boolean =>
  decide({ tenant: only({ effect: "deny", path }) }, question).effect === "deny";

verifies("POLICY", "an allow by path holds for what is surely inside, however the path is written", () => {
  const table: readonly (readonly [string, boolean])[] = [
    ["src/a.ts", true],
    [`${CWD}/src/a.ts`, true],
    ["./src/./a.ts", true],
    ["src/../src/a.ts", true],
    ["src//a.ts", true],
    ["src/.env", true],
    ["src", true],
    ["src2/a.ts", false],
    ["src/../a.ts", false],
    ["src/../../s2/src/a.ts", false],
    ["../s1/src/a.ts", true],
    ["../s1x/src/a.ts", false],
    ["/src/a.ts", false],
    ["/etc/passwd", false],
    [`${CWD}/../../../etc/passwd`, false],
    ["~/src/a.ts", false],
    ["src/a.ts ", false],
    [" src/a.ts", false],
    ["src\\..\\a.ts", false],
    ["src/\u0000a.ts", false],
    ["src/a\n.ts", false],
    ["", false],
    ["SRC/a.ts", false],
    ["/proc/self/cwd/src/a.ts", false],
    ["file:///w/acme/s1/src/a.ts", false],
  ];
  const found = table.map(([file_path]) => [file_path, allows(["src/**"], call("Edit", { file_path }))]);
  expect(found).toEqual(table);
  for (const file_path of [undefined, null, 7, ["src/a.ts"]]) {
    expect(allows(["**"], call("Edit", { file_path }))).toBe(false);
    expect(denies(["secrets/**"], call("Edit", { file_path }))).toBe(true);
  }
});

verifies("POLICY", "a deny by path holds for what could be inside", () => {
  const table: readonly (readonly [string, boolean])[] = [
    ["secrets/key", true],
    ["secrets", true],
    ["a/../secrets/key", true],
    [`${CWD}/secrets/key`, true],
    ["Secrets/KEY", true],
    ["\uff53ecrets/key", true],
    ["~/anything", true],
    ["/proc/self/cwd/secrets/key", true],
    ["/dev/fd/3", true],
    ["src/a.ts", false],
    ["secrets2/key", false],
    ["/w/acme/s2/secrets/key", false],
  ];
  expect(table.map(([file_path]) => [file_path, denies(["secrets/**"], call("Read", { file_path }))])).toEqual(table);
  expect(denies(["**/.env"], call("Read", { file_path: "/srv/app/.env" }))).toBe(true);
  expect(denies(["/etc/**"], call("Read", { file_path: "../../../etc/passwd" }))).toBe(true);
  expect(denies(["/etc/**"], call("Read", { file_path: "etc/passwd" }))).toBe(false);
});

test("a search reaches everything below its folder", () => {
  expect(denies(["secrets/**"], call("Grep", { pattern: "x" }))).toBe(true);
  expect(denies(["secrets/**"], call("Grep", { pattern: "x", path: ".." }))).toBe(true);
  expect(denies(["secrets/**"], call("Grep", { pattern: "x", path: "src" }))).toBe(false);
  expect(denies(["src/*/key"], call("Grep", { pattern: "x", path: "src/a" }))).toBe(true);
  expect(allows(["src/**"], call("Grep", { pattern: "x", path: "src/lib" }))).toBe(true);
  expect(allows(["src/*"], call("Grep", { pattern: "x", path: "src/lib" }))).toBe(false);
  expect(allows(["src/**"], call("Grep", { pattern: "x" }))).toBe(false);
  expect(allows(["**"], call("Grep", { pattern: "x" }))).toBe(true);
});

test("the pattern of Glob is a path too", () => {
  for (const pattern of ["../*", "/etc/*", "~/.ssh/*", "a/../../*", "{a,/etc}/*", undefined, 7, "a\\b"]) {
    expect({ pattern, allowed: allows(["**"], call("Glob", { pattern })) }).toEqual({ pattern, allowed: false });
    expect(denies(["/etc/**"], call("Glob", { pattern }))).toBe(true);
  }
  expect(allows(["**"], call("Glob", { pattern: "src/**/*.ts" }))).toBe(true);
});

test("the paths of a tool that we do not know count for a deny, never for an allow", () => {
  const write = call("mcp__files__write", { path: "src/a.ts" });
  expect(allows(["**"], write)).toBe(false);
  expect(denies(["src/**"], write)).toBe(true);
  expect(denies(["src/**"], call("mcp__files__read", { paths: ["a", "src/b"] }))).toBe(true);
  expect(denies(["src/**"], call("mcp__files__list", { directory: "." }))).toBe(true);
  expect(denies(["src/**"], call("mcp__files__read", { uri: "file:///x" }))).toBe(true);
  expect(denies(["src/**"], call("mcp__mail__send", { text: "src/a" }))).toBe(false);
});

test("wildcards in the name of the session's folder mean nothing", () => {
  const question = { ...call("Edit", { file_path: "/w/anything/src/a.ts" }), cwd: "/w/*" };
  expect(allows(["src/**"], question)).toBe(false);
  expect(allows(["src/**"], { ...question, input: { file_path: "src/a.ts" } })).toBe(true);
});

test("no dots and slashes lead out of an allowed folder", () => {
  const part = fc.constantFrom("..", ".", "", "src", "a", "...", "~", "etc");
  fc.assert(
    fc.property(fc.array(part, { minLength: 1, maxLength: 10 }), fc.boolean(), (parts, absolute) => {
      const file_path = (absolute ? `${CWD}/` : "") + parts.join("/");
      // The same by hand: walk the names from the folder or the root.
      const names = (file_path.startsWith("/") ? "" : CWD).split("/").filter((name) => name !== "");
      for (const name of file_path.split("/")) {
        if (name === "..") names.pop();
        else if (name !== "" && name !== ".") names.push(name);
      }
      const inside = `/${names.join("/")}/`.startsWith(`${CWD}/src/`);
      const clear = file_path !== "" && !file_path.startsWith("~");
      expect(allows(["src/**"], call("Write", { file_path }))).toBe(inside && clear);
    }),
    { numRuns: 2_000 },
  );
});

test("a glob matches as the same regular expression does", () => {
  const glob = fc.string({ unit: fc.constantFrom("a", "b", "*", "?", "."), maxLength: 8 });
  const text = fc.string({ unit: fc.constantFrom("a", "b", "c", "."), maxLength: 10 });
  fc.assert(
    fc.property(glob, text, (pattern, value) => {
      const source = pattern.replace(/[.]/g, "\\.").replaceAll("*", "[^]*").replaceAll("?", "[^]");
      expect(matchesGlob(pattern, value)).toBe(new RegExp(`^${source}$`).test(value));
    }),
    { numRuns: 3_000 },
  );
});
