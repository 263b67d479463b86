import { rmSync } from "node:fs";
import { join } from "node:path";
import { expect } from "vitest";
import { fieldOf } from "../../src/demo/fields.ts";
import type { Rule } from "../../src/demo/rules.ts";
import { type E2e, forEachVersion } from "../kit/e2e-broker.ts";
import { verifies } from "../kit/verifies.ts";
import type { Watched } from "../kit/watched-session.ts";

const script: readonly Rule[] = [
  { text: "hold", reply: ["Wait.", { hold: "the-parent" }] },
  { text: { regex: "^My (\\w+) is (\\w+)" }, reply: "I keep $2." },
  { round: "any", reply: "Understood." },
];

/** What the user had said when the session's model was asked last. */
const said = (e2e: E2e, watched: Watched): string[] =>
  e2e
    .turnsOf(watched)
    .at(-1)
    ?.conversation.userTexts.map((text) => text.trim()) ?? [];

/** HOME of the agent of a session that works in its own folder. */
const homeOf = ({ session, folder }: Watched): string => join(folder, "../../../../data/homes", session.id);

/** The uuid of the assistant's first line that has this text. */
async function answerOf(watched: Watched, text: string): Promise<string> {
  const { payload } = await watched.first(
    text,
    (event) => event.event_type === "assistant" && JSON.stringify(event.payload).includes(text),
  );
  return String(fieldOf(payload, "uuid"));
}

forEachVersion(script, (e2e) => {
  verifies(
    "FORK",
    "a running session forks at a message: the model sees the history up to there, and the parent's turn goes on",
    async () => {
      using parent = await e2e().session({ name: "parent" });
      await parent.send("My number is 4711.");
      await parent.send("My colour is green.");
      const at = await answerOf(parent, "I keep 4711.");
      const running = parent.send("hold on");
      await parent.first("its first word", () => parent.previewText(running.turnId).includes("Wait."));

      const child = await parent.session.fork({ at, name: "child" });
      using forked = await e2e().attach(child.id);
      await forked.send("And now?");
      expect(said(e2e(), forked)).toEqual(["My number is 4711.", "And now?"]);
      expect(forked.events[0]).toMatchObject({
        seq: 1,
        event_type: "session.forked",
        payload: { session_id: parent.session.id, at },
      });
      expect(forked.cliSessionIds()).not.toContain(parent.cliSessionIds()[0]);

      e2e().release("the-parent");
      expect(await running).toMatchObject({ outcome: "completed" });
      await parent.send("Still there?");
      expect(said(e2e(), parent)).toEqual(["My number is 4711.", "My colour is green.", "hold on", "Still there?"]);
      // What is said to the fork now is known to the fork alone, after its process has gone too.
      process.kill(forked.pid(), "SIGKILL");
      await forked.first("its end", (event) => event.event_type === "agent.exited");
      await forked.send("Still there as well?");
      expect(said(e2e(), forked)).toEqual(["My number is 4711.", "And now?", "Still there as well?"]);
    },
  );

  verifies("FORK", "an ended session whose home is gone forks from the store, into another folder too", async () => {
    using parent = await e2e().session();
    await parent.send("My number is 4711.");
    await parent.send("My colour is green.");
    await parent.session.end();
    rmSync(homeOf(parent), { recursive: true });
    const child = await parent.session.fork({ cwd: "shop" });
    using forked = await e2e().attach(child.id);
    expect(forked.folder.endsWith(join("default", "shop"))).toBe(true);
    await forked.send("And now?");
    expect(said(e2e(), forked)).toEqual(["My number is 4711.", "My colour is green.", "And now?"]);
    using other = await e2e().session({ resume_from: { session_id: child.id }, prompt: "A fork of the fork." });
    await other.first("its end", (event) => event.event_type === "turn.completed");
    expect(said(e2e(), other)).toEqual([
      "My number is 4711.",
      "My colour is green.",
      "And now?",
      "A fork of the fork.",
    ]);
  });

  verifies("FORK", "a session that never had a turn forks into one that begins", async () => {
    using parent = await e2e().session();
    using forked = await e2e().attach((await parent.session.fork()).id);
    expect(await forked.send("My number is 12.")).toMatchObject({ outcome: "completed", text: "I keep 12." });
    expect(said(e2e(), forked)).toEqual(["My number is 12."]);
  });

  verifies(
    "SESSION-RESUME",
    "a session whose home is gone goes on with its conversation from the store alone",
    async () => {
      using watched = await e2e().session();
      await watched.send("My number is 4711.");
      process.kill(watched.pid(), "SIGKILL");
      await watched.first("its end", (event) => event.event_type === "agent.exited");
      rmSync(homeOf(watched), { recursive: true });
      await watched.send("What was it?");
      expect(said(e2e(), watched)).toEqual(["My number is 4711.", "What was it?"]);
      expect(new Set(watched.cliSessionIds()).size).toBe(1);
    },
  );
});
