import { writeFile } from "node:fs/promises";
import { expect, test } from "vitest";
import { fieldOf } from "../../src/demo/fields.ts";
import type { Rule } from "../../src/demo/rules.ts";
import { forEachVersion } from "../kit/e2e-broker.ts";
import { verifies } from "../kit/verifies.ts";
import type { Watched } from "../kit/watched-session.ts";

const STORY = "Once upon a time a broker counted lines – jede genau einmal. 🦊 ".repeat(20).trim();
/** A tool that runs until somebody makes the file `go`. */
const GATED = "touch running; echo up > running; until [ -e go ]; do sleep 0.05; done; touch done";

const script: readonly Rule[] = [
  { text: "story", reply: { text: STORY, chunkChars: 40 } },
  { text: "gate", reply: { tool: "Bash", input: { command: GATED, description: "wait" } } },
  { text: "gate", round: 1, reply: "the gate opened" },
  { text: "behind", notification: true, reply: [{ hold: "report" }, "the report is in"] },
  {
    text: "behind",
    reply: { tool: "Bash", input: { command: "touch a; sleep 1; echo finished", run_in_background: true } },
  },
  { text: "behind", round: 1, reply: "it runs behind" },
  { text: { regex: "^say (\\w+)" }, reply: "$1" },
  { round: "any", reply: "fine" },
];

const seqOf = (watched: Watched, turnId: string, type: string): number =>
  watched.events.find((event) => event.event_type === type && event.turn_id === turnId)?.seq ?? Number.NaN;

/** How often a text is in the newest conversation that the model saw. */
const count = (texts: readonly string[], text: string): number =>
  texts.flatMap((one) => one.trim().split("\n")).filter((one) => one === text).length;

const versions = new Set<unknown>();

forEachVersion(script, (e2e, version) => {
  verifies(
    "P3-ONCE",
    "a turn streams: the previews join to the final text, and the model gets the exact text once",
    async () => {
      using watched = await e2e().session();
      const text = 'story: "Grüße"\r\n\t\u2028 𝄞 \\u0041 </system> \u0000 end';
      const sent = watched.send(text);
      const outcome = await sent;
      expect(outcome).toMatchObject({ outcome: "completed", reason: "end_turn", text: STORY });
      expect(watched.previewText(sent.turnId)).toBe(STORY);
      expect(watched.events.filter((event) => event.preview === true).length).toBeGreaterThan(20);
      const [request, ...more] = e2e().turnsOf(watched);
      expect(more).toEqual([]);
      expect(request?.conversation.text).toBe(text);
      const init = watched.lines("system").find((event) => fieldOf(event.payload, "subtype") === "init");
      expect(init?.payload).toMatchObject({ claude_code_version: version });
      expect((await watched.session.view()).agent.version).toBe(version);
      versions.add(version);
    },
  );

  test("set_model: the next turn asks the new model", async () => {
    using watched = await e2e().session({ agent: { model: "claude-sonnet-4-5" } });
    await watched.send("say one");
    await watched.session.setModel("claude-opus-4-1");
    expect(await watched.send("say two")).toMatchObject({ outcome: "completed", text: "two" });
    const models = e2e()
      .turnsOf(watched)
      .map((request) => fieldOf(request.body, "model"));
    expect(models).toEqual([expect.stringContaining("sonnet"), expect.stringContaining("opus")]);
    expect((await watched.session.view()).agent.model).toContain("opus");
  });

  verifies("TURN-QUEUE", "three messages sent while a tool runs are three turns, one after the other", async () => {
    using watched = await e2e().session();
    watched.allowAll();
    const first = watched.send("gate");
    await watched.file("running");
    const later = ["say red", "say green", "say blue"].map((text) => watched.send(text));
    await Promise.all(later.map(({ accepted }) => accepted));
    await open(watched);
    const outcomes = await Promise.all([first, ...later]);
    expect(outcomes.map(({ text }) => text)).toEqual(["the gate opened", "red", "green", "blue"]);
    const turns = [first, ...later].map(({ turnId }) => turnId);
    expect(watched.ends()).toEqual(turns.map((turnId) => [turnId, "turn.completed"]));
    for (const [index, turnId] of turns.entries()) {
      const before = turns[index - 1];
      if (before === undefined) continue;
      expect(seqOf(watched, turnId, "turn.queued")).toBeLessThan(seqOf(watched, before, "turn.completed"));
      expect(seqOf(watched, turnId, "turn.started")).toBeGreaterThan(seqOf(watched, before, "turn.completed"));
    }
    const requests = e2e().turnsOf(watched);
    expect(requests).toHaveLength(5);
    expect(requests.at(-1)?.conversation.userTexts).toEqual(["gate", "say red", "say green", "say blue"]);
  });

  verifies(
    "TURN-ATTRIBUTION",
    "messages sent at once while a tool runs each end exactly once and reach the model once",
    async () => {
      using watched = await e2e().session();
      watched.allowAll();
      const first = watched.send("gate");
      await watched.file("running");
      const texts = ["say red", "say green", "say blue"];
      const later = texts.map((text) => watched.send(text, { delivery: "at_once" }));
      await Promise.all(later.map(({ accepted }) => accepted));
      await open(watched);
      const outcomes = await Promise.all([first, ...later]);
      expect(outcomes.map(({ outcome }) => outcome)).toEqual(Array(4).fill("completed"));
      // One more turn: whatever was left over would have to show by its end.
      const last = watched.send("say last");
      await last;
      const ended = watched.ends().map(([turnId]) => turnId);
      expect(ended).toHaveLength(5);
      expect(new Set(ended)).toEqual(new Set([first, ...later, last].map(({ turnId }) => turnId)));
      const known = e2e().turnsOf(watched).at(-1)?.conversation.userTexts ?? [];
      for (const text of ["gate", ...texts, "say last"]) expect([text, count(known, text)]).toEqual([text, 1]);
    },
  );

  verifies(
    "TURN-ATTRIBUTION",
    "a background task reports in a turn of the agent's own, which ends no turn of a user",
    async () => {
      using watched = await e2e().session();
      watched.allowAll();
      const sent = watched.send("behind");
      expect(await sent).toMatchObject({ outcome: "completed", text: "it runs behind" });
      const own = await watched.first(
        "turn of the agent",
        (event) => event.event_type === "turn.started" && fieldOf(event.payload, "by") === "agent",
      );
      const ownId = own.turn_id ?? "";
      // A message that the CLI has already when the agent's own result comes: that result must not end it.
      const more = watched.send("say more", { delivery: "at_once" });
      await more.accepted;
      e2e().release("report");
      expect(await more).toMatchObject({ outcome: "completed", text: "more" });
      expect(watched.ends()).toEqual([
        [sent.turnId, "turn.completed"],
        [ownId, "turn.completed"],
        [more.turnId, "turn.completed"],
      ]);
      const results = watched.lines("result").map((event) => [event.turn_id, fieldOf(event.payload, "result")]);
      expect(results).toEqual([
        [sent.turnId, "it runs behind"],
        [ownId, "the report is in"],
        [more.turnId, "more"],
      ]);
      const spoken = watched
        .lines("assistant")
        .find((event) => JSON.stringify(event.payload).includes("the report is in"));
      expect(spoken?.turn_id).toBe(ownId);
    },
  );

  verifies(
    "SESSION-CLEAR",
    "known bug 22: /clear changes the CLI's id, not ours; the model forgets, also after a resume",
    async () => {
      using watched = await e2e().session();
      await watched.send("say before");
      const before = await watched.session.view();
      expect(await watched.send("/clear")).toMatchObject({ outcome: "completed" });
      expect(await watched.send("say after")).toMatchObject({ text: "after" });
      const after = await watched.session.view();
      expect(after.agent.cli_session_id).not.toBe(before.agent.cli_session_id);
      expect(watched.events.every((event) => event.session_id === before.id)).toBe(true);
      expect(e2e().turnsOf(watched).at(-1)?.conversation.userTexts).toEqual(["say after"]);
      process.kill(watched.pid(), "SIGKILL");
      await watched.first("exit", (event) => event.event_type === "agent.exited");
      expect(await watched.send("say again")).toMatchObject({ text: "again" });
      // The older version may lose its newest answer when it ends right after it, and then says so to the model.
      const known =
        e2e()
          .turnsOf(watched)
          .at(-1)
          ?.conversation.userTexts.map((text) => text.trim()) ?? [];
      expect(known.at(-1)).toBe("say again");
      // 2.1.197 writes its transcript late: a SIGKILL right after an answer may take the whole exchange with it.
      if (e2e().version !== "2.1.197") expect(known[0]).toBe("say after");
      expect(known).not.toContain("say before");
      expect(watched.all("agent.started").at(-1)?.payload).toMatchObject({
        resumed: true,
        cli_session_id: after.agent.cli_session_id,
      });
    },
  );
});

/** Lets the gated tool of the session end. */
async function open(watched: Watched): Promise<void> {
  await writeFile(`${watched.folder}/go`, "");
}

test("two different versions have run", () => {
  expect(versions.size).toBe(2);
});
