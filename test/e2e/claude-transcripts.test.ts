import { randomUUID } from "node:crypto";
import { describe, expect, test } from "vitest";
import { type ScriptedModel, startScriptedModel } from "../../src/demo/model.ts";
import type { Rule } from "../../src/demo/rules.ts";
import { seq } from "../../src/protocol/ids.ts";
import { isJsonObject } from "../../src/protocol/json.ts";
import { planFork } from "../../src/sessions/fork.ts";
import { insertSession } from "../../src/sessions/rows.ts";
import { newState, snapshotOf } from "../../src/sessions/state.ts";
import { loadTranscript, messageUuids } from "../../src/sessions/transcripts.ts";
import { CLI_VERSIONS } from "../demo/cli.ts";
import { openMemoryEngine } from "../kit/engines.ts";
import { type MirroredAgent, mirroredCli, placeOf, startMirrored } from "../kit/mirrored-cli.ts";
import { orphansOf } from "../kit/model-messages.ts";
import { makeTempDir } from "../kit/temp-dir.ts";

const SCRIPT: readonly Rule[] = [
  {
    text: "delegate",
    reply: [
      "I delegate.",
      {
        tool: "Agent",
        input: { description: "look", prompt: "Subagent, what is 6 by 7?", subagent_type: "general-purpose" },
      },
    ],
  },
  { text: "delegate", round: 1, reply: "It says 42." },
  { text: "Subagent", reply: "Forty-two." },
  { text: "work", reply: ["Working.", { tool: "Bash", input: { command: "sleep 1; echo worked" } }] },
  { text: "work", round: 1, reply: "Worked." },
  { text: "hang", reply: ["so far", { hold: "forever" }] },
  { reply: "Noted." },
];

/** Two machines, one store, and a model that both talk to. */
async function setUp(path: string) {
  const folders = [makeTempDir(), makeTempDir()] as const;
  const engine = await openMemoryEngine();
  const model = await startScriptedModel({ script: SCRIPT });
  const [here, there] = folders.map((folder) => mirroredCli(folder.path, path, model.url, engine.store));
  if (here === undefined || there === undefined) throw new Error("no machines");
  return {
    model,
    store: engine.store,
    here,
    there,
    async [Symbol.asyncDispose]() {
      await Promise.all([here.runner.close(), there.runner.close()]);
      await Promise.all([model.close(), engine[Symbol.asyncDispose]()]);
      for (const folder of folders) folder[Symbol.dispose]();
    },
  };
}

/** The model's newest request as one text; what the API would refuse must not be in it. */
function told(model: ScriptedModel): string {
  const body = model.turns().at(-1)?.body;
  expect(orphansOf(body)).toEqual([]);
  return JSON.stringify(isJsonObject(body) ? body["messages"] : body);
}

async function turn(agent: MirroredAgent, text: string, uuid?: string): Promise<void> {
  agent.say(text, uuid);
  const result = await agent.result();
  expect(result["is_error"], JSON.stringify(result)).toBe(false);
}

const uuidOf = (line: unknown): string => String(isJsonObject(line) ? line["uuid"] : undefined);
const rowOf = (id: string, cliSessionId: string) =>
  insertSession({
    ...{
      id,
      tenant: "acme",
      name: null,
      metadata: {},
      createdAtMs: 1,
      updatedAtMs: 1,
      head: seq(0),
      reserved: 0,
      mark: 0,
    },
    spec: { agent: {}, cwd: `sessions/${id}`, ownFolder: true },
    snapshot: snapshotOf(newState(cliSessionId)),
  });

describe.concurrent.each(CLI_VERSIONS)("the transcript of claude $version", ({ version, path }) => {
  test("what it mirrored moves a session to a fresh home and machine folder: the model sees the first turn, the subagent's file is there", async () => {
    await using world = await setUp(path);
    const { store, model, here, there } = world;
    const cliSessionId = randomUUID();
    const first = await startMirrored(here, "s1", { cliSessionId });
    expect(first.resumed).toBe(false);
    await turn(first, "My number is 4711.");
    await turn(first, "delegate, please");
    await first.end();

    expect(await there.runner.files.hasTranscript(placeOf("s1"), cliSessionId)).toBe(false);
    const second = await startMirrored(there, "s1", { cliSessionId });
    expect(second.resumed).toBe(true);
    await turn(second, "What was my number?");
    for (const words of ["My number is 4711.", "delegate, please", "I delegate.", "What was my number?"])
      expect(told(model)).toContain(words);
    await second.end();

    // What both have mirrored is one conversation, which a third home goes on with.
    const files = await there.runner.files.readTranscript(placeOf("s1"), cliSessionId);
    const subagents = [...(files?.keys() ?? [])].filter((name) => name.startsWith(`${cliSessionId}/subagents/`));
    expect(subagents.map((name) => name.replace(/.*\.(meta\.json|jsonl)$/, "$1")).sort()).toEqual([
      "jsonl",
      "meta.json",
    ]);
    expect(messageUuids((await loadTranscript(store, "s1", cliSessionId)) ?? new Map()).size).toBeGreaterThanOrEqual(3);
    await here.runner.files.remove(placeOf("s1"));
    const third = await startMirrored(here, "s1", { cliSessionId });
    expect(third.resumed).toBe(true);
    await turn(third, "And now?");
    for (const words of ["My number is 4711.", "What was my number?", "And now?"]) expect(told(model)).toContain(words);
    await third.end();
  });

  test("a compacted conversation goes on elsewhere with its summary", async () => {
    await using world = await setUp(path);
    const { model, here, there } = world;
    const cliSessionId = randomUUID();
    const first = await startMirrored(here, "s1", { cliSessionId });
    for (const n of [1, 2, 3]) await turn(first, `Fact ${n}: ${"lorem ipsum ".repeat(50)}`);
    await turn(first, "/compact");
    await turn(first, "After it.");
    await first.end();
    const second = await startMirrored(there, "s1", { cliSessionId });
    await turn(second, "What do you know?");
    for (const words of ["The user talked with a scripted model.", "After it.", "What do you know?"])
      expect(told(model)).toContain(words);
    expect(told(model)).not.toContain("Fact 1");
    await second.end();
  });

  test("a fork ends with the message that it names, also one from before a compaction, and is a conversation of its own", async () => {
    await using world = await setUp(path);
    const { store, model, here, there } = world;
    const cliSessionId = randomUUID();
    await store.write([rowOf("parent", cliSessionId)]);
    const parent = await startMirrored(here, "parent", { cliSessionId });
    await turn(parent, "My number is 4711.");
    const answer = uuidOf(parent.lines.find((line) => line["type"] === "assistant"));
    await turn(parent, "work, please");
    const call = uuidOf(
      parent.lines.find((line) => line["type"] === "assistant" && JSON.stringify(line).includes('"type":"tool_use"')),
    );
    const question = randomUUID();
    await turn(parent, "My colour is green.", question);
    await turn(parent, "/compact");
    await turn(parent, "After it.");

    const cases: [id: string, at: string | undefined, knows: string[], not: string[]][] = [
      ["f1", answer, ["4711"], ["work, please", "green", "After it."]],
      ["f2", call, ["4711", "work, please"], ["Worked.", "green", "After it."]],
      ["f3", question, ["4711", "Worked.", "green"], ["After it."]],
      ["f4", undefined, ["scripted model", "After it."], ["4711", "green"]],
    ];
    // The parent runs all the while.
    for (const [id, at, knows, not] of cases) {
      const own = randomUUID();
      const from = { session_id: "parent", ...(at !== undefined && { at }) };
      const parts = { store, readTranscript: async () => undefined };
      const { fork, writes } = await planFork(parts, from, "acme", 1);
      await store.write([rowOf(id, own), ...writes(id)]);
      const child = await startMirrored(there, id, { cliSessionId: own, fork });
      expect(child.resumed).toBe(false);
      await turn(child, "Go on.");
      expect(new Set(child.lines.map((line) => line["session_id"]).filter(Boolean))).toEqual(new Set([own]));
      for (const words of [...knows, "Go on."]) expect(told(model), id).toContain(words);
      for (const words of not) expect(told(model), id).not.toContain(words);
      await child.end();
      // It has mirrored all that it took over, so it needs its parent no more: looked at for one from before the compaction, and one from after it.
      if (id === "f2" || id === "f3") continue;
      await there.runner.files.remove(placeOf(id));
      const again = await startMirrored(there, id, { cliSessionId: own, fork });
      expect(again.resumed).toBe(true);
      await turn(again, "And on.");
      for (const words of [...knows, "Go on.", "And on."]) expect(told(model), id).toContain(words);
      await again.end();
    }
    await turn(parent, "Still here.");
    expect(told(model)).not.toContain("Go on.");
    await parent.end();
  }, 240_000);

  test("user messages are in it by their own uuid once their turn runs, folded ones too; those that wait are not, nor /clear in 2.1.197", async () => {
    await using world = await setUp(path);
    const { store, here } = world;
    const cliSessionId = randomUUID();
    const [plain, running, folded] = [randomUUID(), randomUUID(), randomUUID()];
    const [hanging, waiting, clear, after] = [randomUUID(), randomUUID(), randomUUID(), randomUUID()];
    const agent = await startMirrored(here, "s1", { cliSessionId });
    const inFiles = async (id: string = cliSessionId) =>
      messageUuids((await here.runner.files.readTranscript(placeOf("s1"), id)) ?? new Map());
    const inStore = async (id: string = cliSessionId) =>
      messageUuids((await loadTranscript(store, "s1", id)) ?? new Map());
    await turn(agent, "plain", plain);
    agent.say("work", running);
    await agent.next(
      "a tool call",
      (line) => line["type"] === "assistant" && JSON.stringify(line).includes('"tool_use"'),
    );
    agent.say("folded", folded);
    await agent.result();
    for (const uuid of [plain, running, folded]) expect(await inFiles()).toContain(uuid);

    // A new conversation; the command itself keeps its uuid in the newer version only.
    await turn(agent, "/clear", clear);
    await turn(agent, "after", after);
    const next = String(agent.lines.findLast((line) => line["type"] === "result")?.["session_id"]);
    expect(next).not.toBe(cliSessionId);
    expect(await inFiles(next)).toContain(after);
    expect((await inFiles(next)).has(clear)).toBe(version !== "2.1.197");
    expect(await inFiles()).not.toContain(clear);

    agent.say("hang", hanging);
    // Both versions write up to 100 ms late: killed at the first words of the answer, the message was in no file. Once mirrored, it is in one.
    await agent.next(
      "its mirror",
      (line) => line["type"] === "transcript_mirror" && JSON.stringify(line).includes(hanging),
    );
    agent.say("waiting", waiting);
    await agent.hasRead();
    await agent.end("kill");
    expect(await inFiles(next)).toContain(hanging);
    expect(await inStore(next)).toContain(hanging);
    expect(await inFiles(next)).not.toContain(waiting);
    // Stored is what was mirrored in time: never more than the files have.
    for (const id of [cliSessionId, next])
      for (const uuid of await inStore(id)) expect(await inFiles(id)).toContain(uuid);
    for (const uuid of [plain, running, folded]) expect(await inStore()).toContain(uuid);
  });
});
