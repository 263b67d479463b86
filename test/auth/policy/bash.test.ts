import { spawnSync } from "node:child_process";
import { existsSync } from "node:fs";
import fc from "fast-check";
import { expect, test } from "vitest";
import { shellParts } from "../../../src/auth/policy/shell-parts.ts";
import { makeTempDir } from "../../kit/temp-dir.ts";

/** No command is found, so each one that bash would run is told to us with its words instead. */
const TELL = 'command_not_found_handle() { printf \'%s\\0\' "$#" "$@" >&3; }\n';

const BASH = "/bin/bash";

/** The commands that bash runs for a line. */
function commandsOfBash(line: string, cwd: string): string[][] {
  const { output } = spawnSync(BASH, ["--norc", "--noprofile", "-c", TELL + line], {
    cwd,
    env: { PATH: "/nonexistent", LC_ALL: "C.UTF-8" },
    stdio: ["ignore", "ignore", "ignore", "pipe"],
    encoding: "utf8",
  });
  const fields = (output[3] ?? "").split("\0").slice(0, -1);
  const commands: string[][] = [];
  for (let at = 0; at < fields.length; at += 1 + Number(fields[at])) {
    commands.push(fields.slice(at + 1, at + 1 + Number(fields[at])));
  }
  return commands;
}

test.skipIf(!existsSync(BASH))(
  "bash runs nothing that a line which is not opaque does not say",
  { timeout: 60_000 },
  () => {
    using folder = makeTempDir();
    // biome-ignore format: one piece beside the other
    const piece = fc.constantFrom(
    "git", "xx", "a.b", "-x", " ", " ", "\t", "\n", ";", "&", "|", "&&", "||", "'", '"', "''", "#", "=", "%", "^", "@", "+", ",", ":", "é", "\u00a0", "\r", "\\", "$", "!",
  );
    const line = fc.array(piece, { minLength: 3, maxLength: 14 }).map((pieces) => pieces.join(""));
    let compared = 0;
    fc.assert(
      fc.property(line, (text) => {
        const { parts, opaque } = shellParts(text);
        fc.pre(!opaque && parts.length > 0);
        const said = parts.map(({ words }) => JSON.stringify(words.map((word) => word.text)));
        const run = commandsOfBash(text, folder.path);
        compared += run.length;
        for (const words of run) expect(said).toContain(JSON.stringify(words));
        expect(run.length).toBeLessThanOrEqual(said.length);
      }),
      { numRuns: 120, maxSkipsPerRun: 1_000 },
    );
    expect(compared).toBeGreaterThan(50);
  },
);
