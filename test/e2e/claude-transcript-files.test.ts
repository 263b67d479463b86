import { randomUUID } from "node:crypto";
import { expect, test } from "vitest";
import { createInlineRunner } from "../../src/agents/inline-runner.ts";
import { processLauncher } from "../../src/agents/process.ts";
import type { Run, Runner, StartRequest } from "../../src/agents/runner-port.ts";
import { type ScriptedModel, startScriptedModel } from "../../src/demo/model.ts";
import type { JsonObject } from "../../src/protocol/json.ts";
import { AGENT_LINE_LIMIT_BYTES } from "../../src/protocol/limits.ts";
import { CLI_VERSIONS } from "../demo/cli.ts";
import { makeTempDir } from "../kit/temp-dir.ts";

function runnerAt(root: string, command: string): Runner {
  const settings = { dataDir: `${root}/data`, workspaceRoot: `${root}/workspaces`, binary: async () => ({ command }) };
  return createInlineRunner({ launcher: processLauncher, settings, closePatience: { eofMs: 0, termMs: 0 } });
}

function requestFor(model: ScriptedModel, more: Partial<StartRequest>): StartRequest {
  return {
    run: randomUUID(),
    place: { tenant: "acme", sessionId: "s1" },
    options: {},
    cliSessionId: randomUUID(),
    sharedEnv: {
      ANTHROPIC_API_KEY: "any",
      ANTHROPIC_BASE_URL: model.url,
      CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC: "1",
    },
    rerun: false,
    mirror: false,
    lineLimitBytes: AGENT_LINE_LIMIT_BYTES,
    ...more,
  };
}

/** Says each text as a turn of its own, then stops the agent. Returns every line that it wrote. */
async function converse(run: Run, texts: readonly string[]): Promise<JsonObject[]> {
  const lines: JsonObject[] = [];
  const ended = Promise.withResolvers<void>();
  const say = (id: number): void => {
    const content = texts[id - 1];
    if (content === undefined) run.stop({ eofMs: 10_000, termMs: 1000 });
    else run.write(id, { type: "user", message: { role: "user", content }, uuid: randomUUID() });
  };
  let results = 0;
  run.attach(0, {
    output(outputs) {
      for (const output of outputs) {
        if (output.kind !== "line") continue;
        lines.push(output.message);
        if (output.message["type"] !== "result") continue;
        results += 1;
        say(results + 1);
      }
    },
    exited(exit, number) {
      run.acknowledge(number);
      if (lines.some((line) => line["type"] === "result")) ended.resolve();
      else ended.reject(new Error(`no result: ${JSON.stringify(exit)}`));
    },
    written() {},
    away() {},
  });
  say(1);
  await ended.promise;
  return lines;
}

const SCRIPT = [{ reply: "I remember." }];
/** Which of these words the model was told in its last call. */
function told(model: ScriptedModel, ...words: string[]): string[] {
  const asked = JSON.stringify(model.turns().at(-1)?.body);
  return words.filter((word) => asked.includes(word));
}

const PLACES = [
  { title: "the session's own folder" },
  {
    title: "a given folder, of a long name beyond ASCII",
    cwd: `projects/e\u0301tude 🦊 ${"x".repeat(150)}/${"y".repeat(90)}`,
  },
];

for (const { version, path } of CLI_VERSIONS) {
  for (const { title, cwd } of PLACES) {
    test(`CLI ${version}, ${title}: a transcript moved to a fresh home is resumed and forked there`, async () => {
      using here = makeTempDir();
      using there = makeTempDir();
      await using model = await startScriptedModel({ script: SCRIPT });
      const place = { tenant: "acme", sessionId: "s1", ...(cwd !== undefined && { cwd }) };
      const first = runnerAt(here.path, path);
      const cliSessionId = randomUUID();
      const began = await first.start(requestFor(model, { place, cliSessionId, mirror: true }));
      expect(began.resumed).toBe(false);
      const lines = await converse(began, ["My number is 4711.", "My colour is green."]);
      expect(lines.some((line) => line["type"] === "transcript_mirror")).toBe(true);
      const assistant = lines.find((line) => line["type"] === "assistant");
      const transcript = await first.files.readTranscript(place, cliSessionId);
      if (transcript === undefined) throw new Error("no transcript");

      const second = runnerAt(there.path, path);
      expect(await second.files.hasTranscript(place, cliSessionId)).toBe(false);
      await second.files.writeTranscript(place, cliSessionId, transcript);
      const resumed = await second.start(requestFor(model, { place, cliSessionId, rerun: true }));
      expect(resumed.resumed).toBe(true);
      await converse(resumed, ["Which number?"]);
      expect(told(model, "4711", "green", "Which number?")).toEqual(["4711", "green", "Which number?"]);

      const fork = { cliSessionId, at: String(assistant?.["uuid"]) };
      const child = { tenant: "acme", sessionId: "s2", ...(cwd !== undefined && { cwd }) };
      await second.files.writeTranscript(child, cliSessionId, transcript);
      const forkedId = randomUUID();
      const forked = await second.start(
        requestFor(model, { place: child, cliSessionId: forkedId, fork, mirror: true }),
      );
      expect(forked.resumed).toBe(false);
      const copied = await converse(forked, ["And now?"]);
      expect(new Set(copied.map((line) => line["session_id"]).filter(Boolean))).toEqual(new Set([forkedId]));
      expect(told(model, "4711", "green", "And now?")).toEqual(["4711", "And now?"]);
      expect(await second.files.hasTranscript(child, forkedId)).toBe(true);
      await Promise.all([first.close(), second.close()]);
    });
  }
}
