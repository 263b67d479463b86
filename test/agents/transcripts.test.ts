import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { expect } from "vitest";
import { isJsonObject, type JsonObject } from "../../src/protocol/json.ts";
import { fakeAgentSpec } from "../kit/fake-agent-spec.ts";
import { verifies } from "../kit/verifies.ts";
import { textOf, watchAgent } from "./watched-agent.ts";

const FOLDER = join(import.meta.dirname, "..", "transcripts");
const AT_ONCE = 4;

interface Recorded {
  readonly dir: string;
  readonly msg: JsonObject;
  readonly raw: string;
  readonly code: unknown;
  readonly signal: unknown;
}

function listed(): string[] {
  const rows = readFileSync(join(FOLDER, "README.md"), "utf8").matchAll(/^\| (\S+\.ndjson) \|/gm);
  return [...rows].map((row) => row[1] ?? "");
}

function entries(file: string): Recorded[] {
  return readFileSync(join(FOLDER, file), "utf8")
    .split("\n")
    .filter(Boolean)
    .map((line) => {
      const { dir, msg, code, signal } = JSON.parse(line);
      const raw = line.slice(line.indexOf('"msg":') + '"msg":'.length, -1);
      return { dir, msg: isJsonObject(msg) ? msg : {}, raw, code, signal };
    });
}

/** Plays the host's part of a recording against the fake agent, and compares what comes with what was recorded. */
async function replay(file: string): Promise<void> {
  await using watched = watchAgent(fakeAgentSpec({ transcript: join(FOLDER, file) }));
  const expected: string[] = [];
  let end: Recorded | undefined;
  for (const entry of entries(file)) {
    if (entry.dir === "recv") {
      expected.push(entry.raw);
      await watched.until(() => watched.outputs.length >= expected.length);
    } else if (entry.dir === "send") await watched.agent.write(entry.msg);
    else if (entry.dir === "exit") end = entry;
  }
  const exit = await watched.agent.stop({ eofMs: 20_000, termMs: 0 });
  expect(watched.outputs.every((output) => output.kind === "line")).toBe(true);
  expect(watched.outputs.map(textOf), file).toEqual(expected);
  if (end !== undefined) expect(exit, file).toMatchObject({ code: end.code, signal: end.signal });
}

verifies(
  "P4-BYTES",
  "every recorded dialogue with the real CLI comes through the launcher byte for byte",
  async () => {
    const files = listed();
    expect(files.length).toBeGreaterThan(0);
    expect(
      readdirSync(FOLDER)
        .filter((name) => name.endsWith(".ndjson"))
        .sort(),
    ).toEqual([...files].sort());
    const waiting = [...files];
    const ran: string[] = [];
    async function work(): Promise<void> {
      for (let file = waiting.shift(); file !== undefined; file = waiting.shift()) {
        await replay(file);
        ran.push(file);
      }
    }
    await Promise.all(Array.from({ length: AT_ONCE }, work));
    expect(ran.sort()).toEqual([...files].sort());
  },
  120_000,
);
