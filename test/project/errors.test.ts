import { expect, test } from "vitest";
import { PROBLEMS, type Problem } from "../../src/protocol/problems.ts";
import { readText } from "../kit/sources.ts";

/** A row of docs/errors.md as the table has it: `code`, status, close, yes or no, summary. */
const rowOf = (code: string, { status, close, retry, summary }: Problem): string =>
  `| \`${code}\` | ${status} | ${close} | ${retry ? "yes" : "no"} | ${summary.replaceAll("|", "\\|")} |`;

const documentedRows = (markdown: string): string[] => markdown.split("\n").filter((line) => /^\| `\w+` \|/.test(line));

test("docs/errors.md has exactly the rows of PROBLEMS, in the same order", () => {
  const markdown = readText("docs/errors.md");
  if (markdown === undefined)
    expect.fail("docs/errors.md does not exist; it lists every row of src/protocol/problems.ts");
  expect(documentedRows(markdown)).toEqual(Object.entries(PROBLEMS).map(([code, problem]) => rowOf(code, problem)));
});

test("the table's reader sees a missing, an invented and a changed row", () => {
  const rows = Object.entries(PROBLEMS).map(([code, problem]) => rowOf(code, problem));
  expect(documentedRows(`# Errors\n\n| code | status |\n|---|---|\n${rows.join("\n")}\n`)).toEqual(rows);
  expect(documentedRows(rows.slice(1).join("\n"))).not.toEqual(rows);
  expect(documentedRows(`${rows.join("\n")}\n| \`invented\` | 400 | 4500 | no | x |`)).not.toEqual(rows);
});

test("close codes say by their range whether coming back helps", () => {
  for (const [code, { close, retry }] of Object.entries<Problem>(PROBLEMS)) {
    if (close >= 4000) expect(`${code} ${close < 4500}`).toBe(`${code} ${retry}`);
  }
});
