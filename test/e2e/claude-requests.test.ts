import { existsSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { connect } from "../../src/client/index.ts";
import type { Rule } from "../../src/demo/rules.ts";
import { ADMIN_KEY, forEachVersion } from "../kit/e2e-broker.ts";
import { verifies } from "../kit/verifies.ts";
import { type Watched, watch } from "../kit/watched-session.ts";

const QUESTION = {
  question: "Which colour?",
  header: "Colour",
  multiSelect: false,
  options: [
    { label: "Red", description: "warm" },
    { label: "Blue", description: "cold" },
  ],
};
const TASK = "Make the file sub.txt.";

const script: readonly Rule[] = [
  { scope: "subagent", text: TASK, reply: { tool: "Bash", input: { command: "touch sub.txt" } } },
  { scope: "subagent", text: TASK, round: 1, reply: "The file is there." },
  {
    text: "delegate",
    reply: {
      tool: "Agent",
      input: { description: "make it", prompt: TASK, subagent_type: "general-purpose", run_in_background: false },
    },
  },
  { text: "delegate", round: 1, reply: "delegated" },
  { text: "touch", reply: { tool: "Bash", input: { command: "touch made.txt" } } },
  { text: "touch", isError: true, reply: "refused: {{result}}" },
  { text: "touch", round: 1, reply: "made" },
  { text: "ask", reply: { tool: "AskUserQuestion", input: { questions: [QUESTION] } } },
  { text: "ask", result: { regex: '"Which colour\\?"="([^"]*)"' }, reply: "it is {{result.1}}" },
  { text: "ask", round: 1, reply: "no answer: {{result}}" },
  {
    text: "two",
    reply: [
      { tool: "Read", input: { file_path: "/etc/passwd" } },
      { tool: "Read", input: { file_path: "/etc/group" } },
    ],
  },
  { text: "two", round: 1, reply: "both read" },
  { round: "any", reply: "fine" },
];

/** `[outcome, decided_by]` of each request that is settled, in order. */
const resolutions = (watched: Watched): unknown[] =>
  watched.all("request.resolved").map(({ payload }) => [payload.request_id, payload.outcome]);
const isMade = (watched: Watched, name: string): boolean => existsSync(join(watched.folder, name));

forEachVersion(script, (e2e) => {
  test("a Bash permission is allowed and the command runs", async () => {
    using watched = await e2e().session();
    const sent = watched.send("touch");
    const request = await watched.request();
    expect(request).toMatchObject({ kind: "permission", toolName: "Bash", input: { command: "touch made.txt" } });
    expect((await watched.session.view()).state).toBe("requires_action");
    expect(isMade(watched, "made.txt")).toBe(false);
    expect(await request.allow()).toMatchObject({ outcome: "accepted" });
    expect(await sent).toMatchObject({ outcome: "completed", text: "made" });
    expect(isMade(watched, "made.txt")).toBe(true);
    expect(e2e().turnsOf(watched)).toHaveLength(2);
  });

  test("a Bash permission is denied: nothing runs, and the model reads why", async () => {
    using watched = await e2e().session();
    const sent = watched.send("touch");
    await (await watched.request()).deny("not on a Friday");
    expect(await sent).toMatchObject({ outcome: "completed", text: expect.stringContaining("not on a Friday") });
    expect(isMade(watched, "made.txt")).toBe(false);
    expect(await watched.send("and now")).toMatchObject({ text: "fine" });
  });

  test("a question is answered and the answer reaches the model", async () => {
    using watched = await e2e().session();
    const sent = watched.send("ask");
    const request = await watched.request();
    expect(request).toMatchObject({ kind: "question", questions: [{ question: "Which colour?" }] });
    await request.answer({ "Which colour?": "Blue" });
    expect(await sent).toMatchObject({ outcome: "completed", text: "it is Blue" });
  });

  verifies(
    "P6-ONE-ANSWER",
    "two clients answer one permission: one answer is taken, the other client is told whose",
    async () => {
      using watched = await e2e().session();
      const other = connect({ url: e2e().url, token: ADMIN_KEY });
      using seen = watch(other.session(watched.session.id), watched.folder);
      const sent = watched.send("touch");
      const [mine, theirs] = await Promise.all([watched.request(), seen.request()]);
      const answers = await Promise.all([mine.allow(), theirs.deny("no")]);
      expect(answers.map(({ outcome }) => outcome).toSorted()).toEqual(["accepted", "already_answered"]);
      await sent;
      expect(isMade(watched, "made.txt")).toBe(answers[0].outcome === "accepted");
      expect(resolutions(watched)).toEqual([[mine.request_id, "answered"]]);
      const answerEvents = watched.events.filter(
        ({ origin, event_type }) => origin === "USER_EVENT" && event_type === "control_response",
      );
      expect(answerEvents).toHaveLength(1);
      other.close();
    },
  );

  test("two permissions are open together and are answered in reverse order", async () => {
    using watched = await e2e().session();
    const sent = watched.send("two");
    const first = await watched.request();
    const second = await watched.request();
    expect((await watched.session.view()).open_requests.map(({ request_id }) => request_id)).toEqual([
      first.request_id,
      second.request_id,
    ]);
    await second.allow();
    await first.deny("only one");
    expect(await sent).toMatchObject({ outcome: "completed", text: "both read" });
    expect(resolutions(watched)).toEqual([
      [second.request_id, "answered"],
      [first.request_id, "answered"],
    ]);
    const results = e2e().turnsOf(watched).at(-1)?.conversation.toolResults ?? [];
    expect(results.filter(({ isError }) => isError).map(({ text }) => text)).toEqual([
      expect.stringContaining("only one"),
    ]);
    expect(results.filter(({ isError }) => !isError)).toHaveLength(1);
  });

  test("a subagent asks for permission in the turn of the message that started it", async () => {
    using watched = await e2e().session();
    const sent = watched.send("delegate");
    const request = await watched.request();
    expect(request).toMatchObject({ toolName: "Bash", turn_id: sent.turnId });
    expect(request.request["agent_id"]).toBeTypeOf("string");
    await request.allow();
    expect(await sent).toMatchObject({ outcome: "completed", text: "delegated" });
    expect(isMade(watched, "sub.txt")).toBe(true);
    expect(watched.ends()).toEqual([[sent.turnId, "turn.completed"]]);
  });
});
