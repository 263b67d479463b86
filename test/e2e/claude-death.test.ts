import { expect } from "vitest";
import type { Rule } from "../../src/demo/rules.ts";
import { type E2e, forEachVersion } from "../kit/e2e-broker.ts";
import { verifies } from "../kit/verifies.ts";
import { isGone, type Watched } from "../kit/watched-session.ts";

const script: readonly Rule[] = [
  { text: "stream", reply: ["The beginning of a long answer", { stall: true }] },
  { text: "sleep", reply: { tool: "Bash", input: { command: "touch up; sleep 300 & echo $! > pid; wait" } } },
  { text: "touch", reply: { tool: "Bash", input: { command: "touch made.txt" } } },
  { text: { regex: "^say (\\w+)" }, reply: "$1" },
  { round: "any", reply: "fine" },
];

const NOTICE_MS = 1000;

/** SIGKILL to the CLI; returns when its turn has ended, which must be soon. */
async function killAgent(watched: Watched, turnId: string): Promise<void> {
  const pid = watched.pid();
  const killedAtMs = Date.now();
  process.kill(pid, "SIGKILL");
  const end = await watched.end(turnId);
  expect(end).toMatchObject({ event_type: "turn.failed", payload: { reason: "agent_exited" } });
  expect(end.timestamp_ms - killedAtMs).toBeLessThan(NOTICE_MS);
  expect(await isGone(pid)).toBe(true);
  expect(watched.all("agent.exited").at(-1)?.payload).toMatchObject({ signal: "SIGKILL", how: "exited" });
}

/** The next message runs in a second process that knows the conversation. */
async function expectResumed(e2e: E2e, watched: Watched): Promise<void> {
  expect(await watched.send("say after")).toMatchObject({ outcome: "completed", text: "after" });
  const started = watched.all("agent.started").map(({ payload }) => payload);
  expect(started.map(({ resumed }) => resumed)).toEqual([false, true]);
  expect(started[1]?.cli_session_id).toBe(started[0]?.cli_session_id);
  const known =
    e2e
      .turnsOf(watched)
      .at(-1)
      ?.conversation.userTexts.map((text) => text.trim()) ?? [];
  expect(known[0]).toBe("say before");
  expect(known.filter((text) => text === "say after")).toHaveLength(1);
  expect(known.at(-1)).toBe("say after");
}

forEachVersion(script, (e2e) => {
  verifies(
    "TURN-PARTIAL",
    "SIGKILL in mid-stream: what was shown is kept, the turn fails at once, the next message resumes",
    async () => {
      using watched = await e2e().session();
      await watched.send("say before");
      const sent = watched.send("stream");
      await watched.first("preview", () => watched.previewText(sent.turnId).includes("long"));
      await killAgent(watched, sent.turnId);
      expect(watched.all("turn.partial").map(({ payload }) => payload)).toEqual([
        { turn_id: sent.turnId, message_id: expect.any(String), text: watched.previewText(sent.turnId) },
      ]);
      expect(await sent).toMatchObject({ outcome: "failed", reason: "agent_exited" });
      await expectResumed(e2e(), watched);
    },
  );

  verifies(
    "SESSION-RESUME",
    "known bugs 14, 19: SIGKILL in mid-tool: the command's children are gone, and a queued message runs in the next process",
    async () => {
      using watched = await e2e().session();
      watched.allowAll();
      await watched.send("say before");
      const sent = watched.send("sleep");
      const child = Number(await watched.file("pid"));
      const queued = watched.send("say queued");
      await queued.accepted;
      await killAgent(watched, sent.turnId);
      expect(await isGone(child)).toBe(true);
      expect(watched.all("turn.partial")).toEqual([]);
      expect(await queued).toMatchObject({ outcome: "completed", text: "queued" });
      await expectResumed(e2e(), watched);
      expect(watched.ends().map(([, type]) => type)).toEqual([
        "turn.completed",
        "turn.failed",
        "turn.completed",
        "turn.completed",
      ]);
    },
  );

  verifies(
    "SESSION-RESUME",
    "SIGKILL with an open permission: the request is lost, and nothing of it runs later",
    async () => {
      using watched = await e2e().session();
      await watched.send("say before");
      const sent = watched.send("touch");
      const request = await watched.request();
      await killAgent(watched, sent.turnId);
      expect(watched.all("request.resolved").map(({ payload }) => payload)).toEqual([
        { request_id: request.request_id, outcome: "lost" },
      ]);
      expect(await request.allow()).toMatchObject({ outcome: "settled" });
      await expectResumed(e2e(), watched);
      expect((await watched.session.view()).open_requests).toEqual([]);
    },
  );
});
