import fc from "fast-check";
import { expect, test } from "vitest";
import { readConversation } from "../../src/demo/conversation.ts";
import { calls, result, user } from "./ask.ts";

const read = (messages: readonly unknown[], more: Readonly<Record<string, unknown>> = {}) =>
  readConversation({ messages, ...more }, {});

const folded = (text: string, after: string): string =>
  `The user sent a new message while you were working:\n${text}\n\n${after}`;
const OLD = "IMPORTANT: After completing your current task, you MUST address the user's message above.";
const NEW = "This is how Claude Code surfaces messages the user sends mid-turn — within the running turn.";

test("messages folded into a turn are unwrapped, in the words of both versions", () => {
  const start = [user("run"), calls("a", "Bash")];
  const oldWay = [
    user(result("a", "ok")),
    { role: "system", content: `${folded("one", OLD)}\n\n${folded("two\n\nlines", OLD)}` },
  ];
  expect(read([...start, ...oldWay])).toMatchObject({ userTexts: ["run", "one", "two\n\nlines"], round: 0 });
  const newWay = [user(result("a", "ok"), folded("one", NEW), folded("two", NEW))];
  expect(read([...start, ...newWay])).toMatchObject({ userTexts: ["run", "one", "two"], text: "two", round: 0 });
  const inReminder = [user(result("a", "ok"), `<system-reminder>\n${folded("one", OLD)}\n</system-reminder>`)];
  expect(read([...start, ...inReminder]).text).toBe("one");
});

test("several user messages of one request are all kept, the newest counts", () => {
  expect(read([user("one"), user("two", "three")])).toMatchObject({
    userTexts: ["one", "two", "three"],
    text: "three",
  });
  expect(read([{ role: "user", content: "as a bare string" }]).text).toBe("as a bare string");
});

test("marks and local commands of the CLI are not typed by the user", () => {
  const marks = [
    "[Request interrupted by user for tool use]\n",
    "<local-command-caveat>Caveat: …</local-command-caveat>\n",
    "<command-name>/compact</command-name>\n",
    "<local-command-stdout>Compacted </local-command-stdout>\n",
    "This session is being continued from a previous conversation that ran out of context. …",
    "<system-reminder>only this</system-reminder>\n\n",
  ];
  expect(read([user("typed"), user(...marks)]).userTexts).toEqual(["typed"]);
});

test("context of role system is not typed by the user, but tells the working directory", () => {
  const context = { role: "system", content: "# Environment\n - Primary working directory: /a b/c\n - Shell: bash" };
  expect(read([user("hi"), context])).toMatchObject({ userTexts: ["hi"], cwd: "/a b/c" });
  const env = "<env>\nWorking directory: /old\n</env>";
  expect(read([user("hi")], { system: env }).cwd).toBe("/old");
  expect(read([user("hi")]).cwd).toBeUndefined();
});

test("what the user typed survives exactly, whatever it is", () => {
  const typed = fc.string({ unit: "binary", minLength: 1 }).filter((text) => !text.startsWith("<"));
  fc.assert(
    fc.property(typed, (text) => {
      const request = JSON.parse(JSON.stringify({ messages: [user("<system-reminder>x</system-reminder>", text)] }));
      expect(readConversation(request, {}).text).toBe(text);
    }),
  );
});

test("no body makes it throw", () => {
  fc.assert(
    fc.property(fc.jsonValue(), fc.jsonValue(), (content, other) => {
      readConversation(other, {});
      readConversation(
        { messages: [content, { role: "user", content }, { role: "assistant", content: [content] }] },
        {},
      );
    }),
  );
});
