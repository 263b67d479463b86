import { expect, test } from "vitest";
import { fieldOf } from "../../src/demo/fields.ts";
import type { Rule } from "../../src/demo/rules.ts";
import { type E2e, forEachVersion } from "../kit/e2e-broker.ts";
import type { Watched } from "../kit/watched-session.ts";

const script: readonly Rule[] = [
  { text: "busy once", times: 1, reply: { status: 529, message: "Overloaded" } },
  { text: "busy once", reply: "recovered" },
  { text: "busy", reply: { status: 529, message: "Overloaded" } },
  { text: "wrong key", reply: { status: 401, message: "invalid x-api-key" } },
  { text: "bad", reply: { status: 400, message: "messages: nonsense" } },
  { text: "cut once", times: 1, reply: ["The line goes", { cut: true }] },
  { text: "cut once", reply: "whole again" },
  { text: "cut", reply: { cut: true } },
  { text: { regex: "^say (\\w+)" }, reply: "$1" },
];

/** The default of ten tries takes minutes. */
const few = { agent: { env: { CLAUDE_CODE_MAX_RETRIES: "1" } } };

const retries = (watched: Watched): number =>
  watched.lines("system").filter((event) => fieldOf(event.payload, "subtype") === "api_retry").length;

async function expectUsable(e2e: E2e, watched: Watched): Promise<void> {
  expect(await watched.send("say hello")).toMatchObject({ outcome: "completed", reason: "end_turn", text: "hello" });
  expect(watched.ends()).toHaveLength(2);
  expect(watched.all("agent.started")).toHaveLength(1);
  expect(e2e.turnsOf(watched).at(-1)?.conversation.text.trim()).toBe("say hello");
}

forEachVersion(script, (e2e) => {
  test("529 once: the CLI tries again, and the turn completes", async () => {
    using watched = await e2e().session(few);
    expect(await watched.send("busy once")).toMatchObject({ outcome: "completed", text: "recovered" });
    expect(retries(watched)).toBe(1);
    await expectUsable(e2e(), watched);
  });

  for (const [text, status, tries] of [
    ["busy", 529, 1],
    ["wrong key", 401, 1],
    ["bad", 400, 0],
  ] as const) {
    test(`${status} for good: the turn fails with the status, and the session goes on`, async () => {
      using watched = await e2e().session(few);
      const sent = watched.send(text);
      expect(await sent).toMatchObject({ outcome: "failed", reason: "api_error" });
      expect(watched.all("turn.failed").map(({ payload }) => payload)).toEqual([
        { turn_id: sent.turnId, reason: "api_error", api_error_status: status, message: expect.any(String) },
      ]);
      expect(retries(watched)).toBe(tries);
      await expectUsable(e2e(), watched);
    });
  }

  test("a stream that is cut once is asked for again, and the turn completes", async () => {
    using watched = await e2e().session(few);
    expect(await watched.send("cut once")).toMatchObject({ outcome: "completed", text: "whole again" });
    await expectUsable(e2e(), watched);
  });

  test("a connection that is always cut fails the turn without a status", async () => {
    using watched = await e2e().session(few);
    const sent = watched.send("cut");
    expect(await sent).toMatchObject({ outcome: "failed", reason: "api_error" });
    expect(watched.all("turn.failed")[0]?.payload).not.toHaveProperty("api_error_status");
    await expectUsable(e2e(), watched);
  });
});
