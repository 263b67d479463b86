import { expect, test } from "vitest";
import { startScriptedModel } from "../../src/demo/model.ts";
import type { Rule } from "../../src/demo/rules.ts";
import { ask, calls, replyText, result, user } from "./ask.ts";

const REMINDER = "<system-reminder>\nwrite delete run\n</system-reminder>\n";
const report = (summary: string, found = ""): string =>
  `<task-notification>\n<task-id>b1</task-id>\n<summary>${summary}</summary>\n<result>${found}</result>\n</task-notification>`;

/** What the script answers to the messages. */
async function answer(
  script: readonly Rule[],
  messages: readonly unknown[],
  headers: Readonly<Record<string, string>> = {},
  more: Readonly<Record<string, unknown>> = {},
): Promise<string> {
  await using model = await startScriptedModel({ script });
  return await replyText(await ask(model.url, messages, more, headers));
}

test("the first rule that fits answers; a literal text is contained, with its case", async () => {
  const script = [
    { text: "Run", reply: "upper" },
    { text: /^run (\w+)$/, reply: "expression $1" },
    { text: "run", reply: "lower" },
    { reply: "anything" },
  ];
  expect(await answer(script, [user("Run")])).toBe("upper");
  expect(await answer(script, [user("run tests\n")])).toBe("expression tests");
  expect(await answer(script, [user("please run")])).toBe("lower");
  expect(await answer(script, [user("else")])).toBe("anything");
});

test("reminders, old texts and assistant texts are not what the user said", async () => {
  const script = [{ text: "write", reply: "wrong" }, { reply: "right" }];
  const old = [user("write"), { role: "assistant", content: [{ type: "text", text: "write" }] }];
  expect(await answer(script, [...old, user(REMINDER, "hello", REMINDER)])).toBe("right");
});

test("rounds are counted from the newest text, and a tool result chooses by name, error and text", async () => {
  const script = [
    { text: "run", reply: { tool: "Bash", input: { command: "false" } } },
    { text: "run", round: 2, reply: "second round" },
    { text: "run", tool: "Bash", isError: true, result: "denied", reply: "not allowed" },
    { text: "run", isError: true, reply: "failed" },
    { text: "run", round: 1, reply: "worked" },
  ];
  const round = (id: string, text: string, isError = false): unknown[] => [
    calls(id, "Bash"),
    user(result(id, [{ type: "text", text }], isError), REMINDER),
  ];
  const before = [user("run"), ...round("old", "fine")];
  expect(await answer(script, [...before, user("run"), ...round("a", "ok")])).toBe("worked");
  expect(await answer(script, [...before, user("run"), ...round("a", "Exit code 1", true)])).toBe("failed");
  expect(await answer(script, [...before, user("run"), ...round("a", "denied", true)])).toBe("not allowed");
  expect(await answer(script, [user("run"), ...round("a", "ok"), ...round("b", "ok")])).toBe("second round");
});

test("a script that says nothing about a round ends the turn, so tools never loop", async () => {
  const script = [{ reply: { tool: "Bash", input: { command: "ls" } } }];
  expect(await answer(script, [user("run"), calls("a", "Bash"), user(result("a", "ok"))])).toBe("Done.");
  const every = [{ round: "any" as const, reply: "each round" }];
  expect(await answer(every, [user("run"), calls("a", "Bash"), user(result("a", "ok"))])).toBe("each round");
});

test("an unmatched text is named", async () => {
  expect(await answer([{ text: "a", reply: "b" }], [user("zzz")])).toBe('No rule of the script matches "zzz".');
});

test("the end of a background task is for notification rules only, in both versions' words", async () => {
  const script = [
    { text: "start", notification: { regex: "agent (\\w+)" }, reply: "agent: {{notification.1}}" },
    { text: "start", notification: true as const, reply: "over: {{notification}}" },
    { text: "start", round: 1, reply: "text" },
  ];
  const started = [user("start"), calls("a", "Bash"), user(result("a", "started"))];
  const before = [...started, { role: "assistant", content: [{ type: "text", text: "ok" }] }];
  expect(await answer(script, [...before, user(report("sleep ended"))])).toBe("over: sleep ended");
  const wrapped = `<system-reminder>\n[SYSTEM NOTIFICATION - NOT USER INPUT]\n\n${report("agent x", "found")}\n</system-reminder>`;
  expect(await answer(script, [...before, user(wrapped)])).toBe("agent: x");
  expect(await answer([{ round: "any", reply: "text" }], [...before, user(report("sleep ended"))])).toBe(
    "Noted: sleep ended",
  );
});

test("a task that ends while a turn runs does not end the turn", async () => {
  const script = [{ text: "start", round: 1, reply: "first round" }];
  const messages = [user("start"), calls("a", "Bash"), user(result("a", "ok"), report("sleep ended"))];
  expect(await answer(script, messages)).toBe("first round");
});

test("a rule can be for subagents or for the main conversation only", async () => {
  const script: Rule[] = [
    { scope: "subagent", text: "count", reply: "I am the agent" },
    { scope: "main", text: "count", reply: "I am the main one" },
  ];
  expect(await answer(script, [user("count")], { "x-claude-code-agent-id": "a1" })).toBe("I am the agent");
  expect(await answer(script, [user("count")])).toBe("I am the main one");
});

test.each([
  ["a quota check", [user("quota")], { max_tokens: 1 }, "."],
  [
    "a title",
    [user("<session>\nrun\n</session>")],
    {
      output_config: {
        format: {
          type: "json_schema",
          schema: { type: "object", properties: { title: { type: "string" } }, required: ["title"] },
        },
      },
    },
    '{"title":"Scripted session"}',
  ],
  ["a compaction", [user("run"), user("CRITICAL: Respond with TEXT ONLY. Do NOT call any tools.\n…")], {}, /<summary>/],
  [
    "a side question in its own block",
    [user("<system-reminder>This is a side question from the user. …</system-reminder>", "run")],
    { tools: [{ name: "Bash" }] },
    /side questions/,
  ],
  [
    "a side question in one text",
    [user("<system-reminder>This is a side question from the user. …</system-reminder>\n\nrun")],
    {},
    /side questions/,
  ],
  ["a suggestion", [user("[SUGGESTION MODE: Suggest what the user might type next")], {}, "none"],
  ["a helper without tools", [user("Command: run")], {}, "none"],
])("%s of the CLI's own never meets the script", async (_, messages, more, expected) => {
  const reply = await answer([{ round: "any", reply: "from the script" }], messages, { "x-app": "cli" }, more);
  expect(reply).toEqual(expected instanceof RegExp ? expect.stringMatching(expected) : expected);
});

test("a forced tool gets a call of that tool", async () => {
  await using model = await startScriptedModel({ script: [{ reply: "from the script" }] });
  const schema = { type: "object", properties: { risk: { enum: ["low", "high"] } }, required: ["risk"] };
  const more = {
    tool_choice: { type: "tool", name: "judge" },
    tools: [{ name: "judge", input_schema: schema }],
    stream: false,
  };
  const body = await (await ask(model.url, "x", more)).json();
  expect(body).toMatchObject({ content: [{ type: "tool_use", name: "judge", input: { risk: "low" } }] });
  expect(model.requests[0]?.kind).toBe("forced_tool");
});
