import { readdirSync, readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { parseCommand } from "../../src/protocol/commands.schema.ts";
import { isJsonObject, type JsonObject } from "../../src/protocol/json.ts";
import { BrokerError } from "../../src/protocol/problems.ts";
import { ASK_PEOPLE } from "../../src/sessions/port.ts";
import { newState, type State } from "../../src/sessions/state.ts";
import { type Signal, step } from "../../src/sessions/step.ts";
import type { Draft } from "../../src/sessions/work.ts";
import { createJudge } from "../kit/session-judge.ts";
import { verifies } from "../kit/verifies.ts";

const FOLDER = new URL("../transcripts/", import.meta.url);

const EVENT_TYPES: Readonly<Record<string, string>> = { user: "query" };

/** What the recorded host wrote, as a command of ours. @throws BrokerError where we refuse what the CLI was sent */
function commandOf(msg: JsonObject, id: string): Signal {
  const event_type = EVENT_TYPES[String(msg.type)] ?? String(msg.type);
  const delivery = event_type === "query" ? { delivery: "at_once" } : {};
  return {
    type: "command",
    actor: { id: "key-1", roles: ["operator"] },
    command: parseCommand({ id, event_type, payload: msg, ...delivery }),
  };
}

/** Plays one recorded dialogue through the step, as if the agent were live from the start. */
function play(file: string): { events: Draft[]; state: State } {
  let ids = 0;
  const newId = () => `id-${++ids}`;
  const judge = createJudge();
  const events: Draft[] = [];
  let state: State = { ...newState("cli-1"), phase: { name: "live", since: 1 }, told: "idle", initialized: {} };
  const uuids = new Set<unknown>();
  const run = (make: () => Signal): void => {
    try {
      const out = step(state, make(), { now: 1, newId, decide: ASK_PEOPLE });
      judge.outcome(out);
      events.push(...out.events);
      state = out.state;
    } catch (error) {
      if (!(error instanceof BrokerError)) throw error;
    }
  };
  for (const text of readFileSync(new URL(file, FOLDER), "utf8").trimEnd().split("\n")) {
    const { dir, msg } = JSON.parse(text);
    // A uuid that comes twice is refused before the step (PROTOCOL 6.1).
    const isRepeat = dir === "send" && typeof msg.uuid === "string" && uuids.has(msg.uuid);
    if (dir === "send" && !isRepeat) run(() => commandOf(msg, newId()));
    if (dir === "send") uuids.add(msg.uuid);
    if (dir !== "recv") continue;
    run(() => ({
      type: "output",
      lineLimitBytes: 1,
      lines: [{ kind: "line", bytes: Buffer.from(JSON.stringify(msg)), message: msg }],
    }));
  }
  run(() => ({ type: "exited", exit: { code: 0, signal: null, how: "exited", stderrTail: "" } }));
  judge.closed();
  return { events, state };
}

const FILES = readdirSync(FOLDER).filter((name) => name.endsWith(".ndjson"));

test.each(FILES)("%s: every turn ends once, every request and control request is settled once", (file) => {
  expect(play(file).state.phase.name).toBe("hibernated");
});

const ends = (file: string): string[] =>
  play(file)
    .events.filter((event) => event.event_type === "turn.completed" || event.event_type === "turn.failed")
    .map((event) => {
      const payload = isJsonObject(event.payload) ? event.payload : {};
      return `${String(payload.turn_id).slice(-2)} ${payload.stop_reason ?? payload.reason}${payload.folded_into ? " folded" : ""}`;
    });

verifies(
  "TURN-ATTRIBUTION",
  "results of queued, withdrawn, interrupted and pre-empted messages go to the right turns, on both versions",
  () => {
    const expected = ["20 end_turn", "22 withdrawn", "21 interrupted", "23 end_turn"];
    // 2.1.197 ignores cancel_queued, and runs the message; 2.1.332 withdraws it.
    expect(ends("06-queue-interrupt.2.1.332.ndjson")).toEqual([
      ...expected,
      "32 withdrawn",
      "31 interrupted",
      "41 interrupted",
      "42 end_turn",
    ]);
    expect(ends("06-queue-interrupt.2.1.197.ndjson").slice(0, 4)).toEqual(expected);
    expect(ends("06-queue-replay.2.1.332.ndjson").slice(0, 3)).toEqual(["01 end_turn", "02 end_turn", "03 end_turn"]);
    expect(ends("06-queue-replay.2.1.197.ndjson").slice(0, 3)).toEqual(["01 end_turn", "02 end_turn", "03 end_turn"]);
  },
);

verifies("TURN-INTERRUPT", "interrupted turns complete; API errors fail; running out of turns is a stop reason", () => {
  expect(ends("05-interrupt.2.1.197.ndjson").map((end) => end.split(" ")[1])).toEqual([
    "interrupted",
    "interrupted",
    "end_turn",
  ]);
  expect(ends("05-interrupt.2.1.332.ndjson").map((end) => end.split(" ")[1])).toEqual([
    "interrupted",
    "interrupted",
    "end_turn",
  ]);
  expect(ends("08-ERR529.2.1.332.ndjson").map((end) => end.split(" ")[1])).toEqual(["api_error", "api_error"]);
  expect(ends("08-maxturns.2.1.197.ndjson")[0]).toContain("max_turns");
});
