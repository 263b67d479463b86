import { execFile } from "node:child_process";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { expect, test } from "vitest";
import { startScriptedModel } from "../../src/demo/model.ts";
import { loadScript, parseScript } from "../../src/demo/rules.ts";
import { demoScript } from "../../src/demo/script.ts";
import { DEMO_BUG, writeDemoWorkspace } from "../../src/demo/workspace.ts";
import { ask, replyText } from "./ask.ts";

const run = promisify(execFile);

async function temporaryFolder() {
  const path = await mkdtemp(join(tmpdir(), "demo-"));
  return { path, [Symbol.asyncDispose]: () => rm(path, { recursive: true, force: true }) };
}

test("a script can be a JSON file or JSON text", async () => {
  await using folder = await temporaryFolder();
  const json = JSON.stringify([{ text: { regex: "^hi (\\w+)", flags: "i" }, reply: ["Hello ", { text: "$1" }] }]);
  await writeFile(join(folder.path, "script.json"), json);
  for (const script of [json, loadScript(join(folder.path, "script.json"))]) {
    await using model = await startScriptedModel({ script });
    expect(await replyText(await ask(model.url, "HI there"))).toBe("Hello there");
  }
});

test.each([
  ["an unknown condition", [{ txet: "hi", reply: "x" }], "txet"],
  ["a rule without reply", [{ text: "hi" }], "reply"],
  ["a bad expression", [{ text: { regex: "(" }, reply: "x" }], "regular expression"],
  ["an unknown step", [{ reply: { say: "x" } }], "reply"],
  ["a status that is no error", [{ reply: { status: 200 } }], "reply"],
  ["no list", { reply: "x" }, "array"],
])("%s is refused when the script is read", (_, script, word) => {
  expect(() => parseScript(JSON.stringify(script))).toThrow(word);
});

test("every word that the demo's help names has a reply of its own", async () => {
  await using model = await startScriptedModel({ script: demoScript });
  const help = await replyText(await ask(model.url, "what can you do?"));
  const words = Array.from(help.matchAll(/^- \*\*(\w+)\*\*/gm), (found) => found[1] ?? "");
  expect(words).toEqual(["stream", "test", "fix", "write", "ask", "background", "agent", "busy"]);
  for (const word of words) {
    const response = await ask(model.url, `Please ${word.toUpperCase()} now`, {}, { "x-claude-code-session-id": word });
    const text = await response.text();
    expect(text, word).not.toContain("scripted model: no account");
  }
});

test("the demo workspace has one bug: its test fails, and passes after the edit of the script", async () => {
  await using folder = await temporaryFolder();
  await writeDemoWorkspace(folder.path);
  const runTests = () => run(process.execPath, ["--test"], { cwd: folder.path, env: { PATH: process.env.PATH } });
  await expect(runTests()).rejects.toMatchObject({ code: 1 });
  const file = join(folder.path, DEMO_BUG.file);
  const source = await readFile(file, "utf8");
  await writeFile(file, source.replace(DEMO_BUG.wrong, DEMO_BUG.right));
  await runTests();
});
