import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { fieldOf } from "../../src/demo/fields.ts";
import { startScriptedModel } from "../../src/demo/model.ts";
import { demoScript } from "../../src/demo/script.ts";
import { DEMO_BUG, writeDemoWorkspace } from "../../src/demo/workspace.ts";
import { CLI_VERSIONS, type Cli, startCli } from "../demo/cli.ts";

const allow = (input: unknown): unknown => ({ behavior: "allow", updatedInput: input });
const deny = (): unknown => ({ behavior: "deny", message: "not now" });

for (const { version, path } of CLI_VERSIONS) {
  describe.concurrent(`claude ${version}`, () => {
    const start = async () => {
      const model = await startScriptedModel({ script: demoScript });
      const cli = startCli(path, model.url);
      await writeDemoWorkspace(cli.workspace);
      const read = (name: string): string => readFileSync(join(cli.workspace, name), "utf8");
      const dispose = async (): Promise<void> => {
        await cli[Symbol.asyncDispose]();
        await model.close();
      };
      return { model, cli, read, [Symbol.asyncDispose]: dispose };
    };

    test("streams help for an unknown text, and the exact text reaches the model", async () => {
      await using demo = await start();
      const text = `Grüße 🦊 ${"x".repeat(1_000_000)} end`;
      demo.cli.say(text);
      expect(await resultText(demo.cli)).toContain("I am a scripted model");
      const deltas = demo.cli.lines.filter((line) => fieldOf(line.event, "type") === "content_block_delta");
      expect(deltas.length).toBeGreaterThan(10);
      expect(demo.model.turns().map((request) => sha256(request.conversation.text))).toEqual([sha256(text)]);
      expect(demo.cli.lines.find((line) => line.subtype === "init")).toMatchObject({ claude_code_version: version });
    });

    test("a command fails, an edit is denied and then allowed, and the command works", async () => {
      await using demo = await start();
      demo.cli.say("test");
      expect(await demo.cli.answerTool("Bash", allow)).toMatchObject({ command: "node --test" });
      expect(await resultText(demo.cli)).toContain("The command failed");
      demo.cli.say("please fix it");
      await demo.cli.answerTool("Edit", deny);
      expect(await resultText(demo.cli)).toContain("I leave the file as it is");
      expect(demo.read(DEMO_BUG.file)).toContain(DEMO_BUG.wrong);
      demo.cli.say("fix");
      await demo.cli.answerTool("Edit", allow);
      expect(await resultText(demo.cli)).toContain("Fixed.");
      expect(demo.read(DEMO_BUG.file)).toContain(DEMO_BUG.right);
      demo.cli.say("test");
      await demo.cli.answerTool("Bash", allow);
      expect(await resultText(demo.cli)).toContain("All tests pass");
      demo.cli.say("fix");
      expect(await resultText(demo.cli)).toContain("gone already");
    });

    test("writes a file with permission", async () => {
      await using demo = await start();
      demo.cli.say("write");
      await demo.cli.answerTool("Write", allow);
      expect(await resultText(demo.cli)).toContain("Done");
      expect(demo.read("NOTES.md")).toContain("with your permission");
    });

    test("asks a question and uses the answer", async () => {
      await using demo = await start();
      demo.cli.say("ask");
      await demo.cli.answerTool("AskUserQuestion", (input) => ({
        behavior: "allow",
        updatedInput: { ...Object(input), answers: { "How should the cart show its amounts?": "Whole numbers" } },
      }));
      expect(await resultText(demo.cli)).toBe("**Whole numbers** it is. I would change the cart accordingly.");
    });

    test("a background command reports in a second turn", async () => {
      await using demo = await start();
      demo.cli.say("background");
      expect(await resultText(demo.cli)).toContain("It runs.");
      const second = await demo.cli.result();
      expect(second.origin).toMatchObject({ kind: "task-notification" });
      expect(second.result).toContain('Background command "Wait five seconds" completed (exit code 0)');
    });

    test("a background agent reports in a second turn", async () => {
      await using demo = await start();
      demo.cli.say("agent");
      expect(await resultText(demo.cli)).toContain("on its way");
      const second = await demo.cli.result();
      expect(second.result).toContain("It adds up a shopping cart");
      const scopes = demo.model.turns().map((request) => request.conversation.scope);
      expect(scopes.filter((scope) => scope === "subagent")).toHaveLength(2);
    });

    test("an overloaded API is tried again", async () => {
      await using demo = await start();
      demo.cli.say("busy");
      expect(await resultText(demo.cli)).toContain("overloaded twice");
      expect(demo.cli.lines.filter((line) => line.subtype === "api_retry")).toHaveLength(2);
    });

    test("side calls, and a message folded into a running turn, are understood", async () => {
      await using demo = await start();
      demo.cli.write({
        type: "control_request",
        request_id: "title",
        request: { subtype: "generate_session_title", description: "fix the stream test", persist: false },
      });
      const title = await demo.cli.next("the title", (line) => fieldOf(line.response, "request_id") === "title");
      expect(title.response).toMatchObject({ response: { title: "Scripted session" } });
      demo.cli.say("write");
      const answered = demo.cli.answerTool("Write", (input) => {
        demo.cli.say("hello there");
        return allow(input);
      });
      await answered;
      const last = await demo.model.waitForRequest((request) => request.conversation.userTexts.includes("hello there"));
      expect(last.conversation).toMatchObject({ userTexts: ["write", "hello there"], text: "hello there", round: 0 });
      expect(await resultText(demo.cli)).toBeTypeOf("string");
    });

    test("an interrupted stream is given up by the model too", async () => {
      const script = [{ text: "hang", reply: ["Wait", { stall: true as const }] }, { reply: "still here" }];
      await using model = await startScriptedModel({ script });
      await using cli = startCli(path, model.url);
      cli.say("hang");
      await cli.next("the first delta", (line) => fieldOf(line.event, "type") === "content_block_delta");
      cli.write({ type: "control_request", request_id: "stop", request: { subtype: "interrupt" } });
      expect(await cli.result()).toMatchObject({ subtype: "error_during_execution" });
      expect(await model.turns()[0]?.settled).toBe("aborted");
      cli.say("go on");
      expect(await resultText(cli)).toBe("still here");
      expect(model.turns().at(-1)?.conversation.text).toBe("go on");
    });
  });
}

async function resultText(cli: Cli): Promise<unknown> {
  return (await cli.result()).result;
}

function sha256(text: string): string {
  return createHash("sha256").update(text).digest("hex");
}
