import { expect } from "vitest";
import { fieldOf } from "../../src/demo/fields.ts";
import type { Rule } from "../../src/demo/rules.ts";
import { type E2e, forEachVersion } from "../kit/e2e-broker.ts";
import { verifies } from "../kit/verifies.ts";
import { isGone, type Watched } from "../kit/watched-session.ts";

const script: readonly Rule[] = [
  { text: "stream", reply: ["The beginning of a long answer", { stall: true }] },
  { text: "sleep", reply: { tool: "Bash", input: { command: "touch up; sleep 300 & echo $! > pid; wait" } } },
  { text: "sleep", round: 1, reply: "woke up" },
  { text: "touch", reply: { tool: "Bash", input: { command: "touch made.txt" } } },
  { text: { regex: "^say (\\w+)" }, reply: "$1" },
  { round: "any", reply: "fine" },
];

/** The session works, and its turn has one end and no other turn's. */
async function expectUsable(e2e: E2e, watched: Watched): Promise<void> {
  const before = watched.ends().length;
  expect(await watched.send("say hello")).toMatchObject({ outcome: "completed", text: "hello" });
  expect(watched.ends()).toHaveLength(before + 1);
  expect(e2e.turnsOf(watched).at(-1)?.conversation.text.trim()).toBe("say hello");
  expect(watched.all("agent.started")).toHaveLength(1);
}

forEachVersion(script, (e2e) => {
  verifies(
    "TURN-INTERRUPT",
    "in mid-stream: the API request is given up, the turn is interrupted, the session goes on",
    async () => {
      using watched = await e2e().session();
      const sent = watched.send("stream");
      await watched.first("preview", () => watched.previewText(sent.turnId).includes("long"));
      await watched.session.interrupt();
      expect(await sent).toMatchObject({ outcome: "completed", reason: "interrupted" });
      expect(await e2e().turnsOf(watched)[0]?.settled).toBe("aborted");
      await expectUsable(e2e(), watched);
    },
  );

  verifies(
    "TURN-INTERRUPT",
    "known bug 14: in mid-tool: the command and its children are gone, no tool call is left open, the session goes on",
    async () => {
      using watched = await e2e().session();
      watched.allowAll();
      const sent = watched.send("sleep");
      const child = Number(await watched.file("pid"));
      await watched.session.interrupt();
      expect(await sent).toMatchObject({ outcome: "completed", reason: "interrupted" });
      expect(await isGone(child)).toBe(true);
      await expectUsable(e2e(), watched);
    },
  );

  verifies(
    "TURN-INTERRUPT",
    "with an open permission: it is cancelled first, then the turn is interrupted",
    async () => {
      using watched = await e2e().session();
      const sent = watched.send("touch");
      const request = await watched.request();
      await watched.session.interrupt();
      expect(await sent).toMatchObject({ outcome: "completed", reason: "interrupted" });
      expect(watched.all("request.resolved").map(({ payload }) => payload)).toEqual([
        { request_id: request.request_id, outcome: "cancelled" },
      ]);
      expect(await request.allow()).toMatchObject({ outcome: "settled" });
      await expectUsable(e2e(), watched);
    },
  );

  verifies("TURN-INTERRUPT", "while idle: it is answered, ends no turn, and the session goes on", async () => {
    using watched = await e2e().session();
    await watched.send("say one");
    await watched.session.interrupt();
    expect(watched.ends()).toHaveLength(1);
    await expectUsable(e2e(), watched);
    expect(watched.lines("result").map((event) => fieldOf(event.payload, "result"))).toEqual(["one", "hello"]);
  });

  verifies("TURN-INTERRUPT", "queued messages run next", async () => {
    using watched = await e2e().session();
    const sent = watched.send("stream");
    await watched.first("preview", () => watched.previewText(sent.turnId).includes("long"));
    const queued = watched.send("say next");
    await queued.accepted;
    await watched.session.interrupt();
    expect(await sent).toMatchObject({ outcome: "completed", reason: "interrupted" });
    expect(await queued).toMatchObject({ outcome: "completed", text: "next" });
    await expectUsable(e2e(), watched);
  });
});
