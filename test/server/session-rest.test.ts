import { expect } from "vitest";
import { isAlive as isLiving, readProcess } from "../../src/agents/process-table.ts";
import type { Session } from "../../src/sessions/port.ts";
import { ACTOR, answer, control, openSessionHost, query, type Watched, watchSession } from "../kit/session-host.ts";
import { verifies } from "../kit/verifies.ts";

const stateTold =
  (state: string, after = 0) =>
  (event: Watched["events"][number]): boolean =>
    event.event_type === "session.state" && event.payload.state === state && event.seq > after;

function pidOf(session: Session): number {
  const { pid } = session.view().agent;
  if (pid === undefined) throw new Error("the session has no process");
  return pid;
}

const isGone = (pid: number): boolean => {
  const entry = readProcess(pid);
  return entry === undefined || !isLiving(entry);
};

verifies(
  "SESSION-HIBERNATE",
  "an idle session loses its process and gets it back, resumed, with the next message; a turn cannot tell the difference",
  async () => {
    await using host = await openSessionHost({}, { idleTimeoutMs: 100 });
    const session = await host.create();
    using watched = watchSession(session);
    await (await session.turn(query("one"), ACTOR)).ended;
    const first = watched.of("agent.started")[0]?.payload.pid;
    const slept = await watched.first(stateTold("hibernated"));
    expect(isGone(Number(first))).toBe(true);
    const second = await (await session.turn(query("two"), ACTOR)).ended;
    expect(second).toMatchObject({ outcome: "completed" });
    await watched.first(stateTold("hibernated", slept.seq));
    expect(watched.of("agent.started").map((event) => event.payload.resumed)).toEqual([false, true]);
    expect(watched.of("turn.failed")).toEqual([]);
  },
);

verifies(
  "SESSION-HIBERNATE",
  "neither a running turn, nor an open question, nor idle_timeout_s 0 lets a process be taken",
  async () => {
    await using host = await openSessionHost({}, { idleTimeoutMs: 50 });
    const kept = await host.create({ idle_timeout_s: 0 });
    const asked = await host.create();
    using watched = watchSession(asked);
    await (await kept.turn(query("one"), ACTOR)).ended;
    const turn = await asked.turn(query("!ask"), ACTOR);
    const opened = await watched.first((event) => event.event_type === "request.opened");
    // A third session goes to sleep meanwhile: by then the others would have, too.
    const other = await host.create();
    using sleeper = watchSession(other);
    await (await other.turn(query("one"), ACTOR)).ended;
    await sleeper.first(stateTold("hibernated"));
    expect([asked.view().state, kept.view().state]).toEqual(["requires_action", "idle"]);
    await asked.command(answer(String(opened.payload.request_id), { behavior: "deny", message: "no" }), ACTOR);
    expect(await turn.ended).toMatchObject({ outcome: "completed" });
    await watched.first(stateTold("hibernated"));
    expect(isGone(pidOf(kept))).toBe(false);
    await kept.update({ idle_timeout_s: 1 }, ACTOR);
    using keeper = watchSession(kept);
    await keeper.first(stateTold("hibernated"));
  },
);

verifies(
  "SESSION-HIBERNATE",
  "a message that comes while the process is being taken away is not lost: the next process runs it, once",
  async () => {
    await using host = await openSessionHost({ ignoreEof: true }, { idleTimeoutMs: 1 });
    const session = await host.create();
    const clock = await host.create({ idle_timeout_s: 0 });
    using watched = watchSession(session);
    for (let round = 0; round < 8; round += 1) {
      expect(await (await session.turn(query(`message ${round}`), ACTOR)).ended).toMatchObject({
        outcome: "completed",
      });
      // Its process is asked to stop while another session works, and ignores EOF for a while.
      for (let tick = 0; tick < round; tick += 1) await (await clock.turn(query("tick"), ACTOR)).ended;
    }
    await watched.first(stateTold("hibernated"));
    expect(watched.of("turn.failed")).toEqual([]);
    expect(watched.of("user")).toHaveLength(8);
    expect(watched.of("agent.started").length).toBeGreaterThan(1);
  },
);

verifies(
  "SESSION-SLOTS",
  "over the limit of living agents an idle one makes room; with none idle the start waits, says so, and goes on in its turn",
  async () => {
    await using host = await openSessionHost({}, { liveAgents: 1, liveAgentsPerTenant: 1 });
    const first = await host.create();
    const second = await host.create();
    const third = await host.create();
    using one = watchSession(first);
    using two = watchSession(second);
    await (await first.turn(query("one"), ACTOR)).ended;
    const busy = await second.turn(query("!ask"), ACTOR);
    const opened = await two.first((event) => event.event_type === "request.opened");
    await one.first(stateTold("hibernated"));
    using three = watchSession(third);
    const waits = await third.turn(query("three"), ACTOR);
    await three.first((event) => event.event_type === "session.state" && event.payload.reason !== undefined);
    expect(third.view()).toMatchObject({ state: "starting", reason: expect.stringContaining("place") });
    await second.command(answer(String(opened.payload.request_id), { behavior: "deny", message: "no" }), ACTOR);
    expect(await busy.ended).toMatchObject({ outcome: "completed" });
    // It was asked for its place when it was busy; whoever waits asks again when it is idle.
    expect(await waits.ended).toMatchObject({ outcome: "completed" });
  },
);

verifies("SESSION-SLOTS", "a session that is ended while it waits for a place ends at once", async () => {
  await using host = await openSessionHost({}, { liveAgents: 1 });
  const busy = await host.create();
  const waiting = await host.create();
  using watched = watchSession(busy);
  await busy.turn(query("!stall"), ACTOR);
  await watched.first((event) => event.event_type === "user");
  const turn = await waiting.turn(query("two"), ACTOR);
  await waiting.end();
  expect(await turn.ended).toMatchObject({ outcome: "failed", reason: "session_ended" });
});

verifies(
  "TURN-STALLED",
  "known bug 9: a turn that says nothing is told once as stalled; interrupted in vain, its agent is restarted, and the session goes on",
  async () => {
    await using host = await openSessionHost({}, { stallMs: 300, stallRestartMs: 200 });
    const session = await host.create();
    using watched = watchSession(session);
    const turn = await session.turn(query("!stall"), ACTOR);
    await watched.first((event) => event.event_type === "user");
    process.kill(pidOf(session), "SIGSTOP");
    const stalled = await watched.first((event) => event.event_type === "turn.stalled");
    expect(stalled.payload).toMatchObject({ turn_id: turn.turn_id, offers: ["interrupt", "restart"] });
    await session.command(control("interrupt"), ACTOR);
    expect(await turn.ended).toMatchObject({ outcome: "failed", reason: "stalled" });
    expect(await (await session.turn(query("two"), ACTOR)).ended).toMatchObject({ outcome: "completed" });
    expect(watched.of("turn.stalled")).toHaveLength(1);
    expect(watched.of("turn.failed")).toHaveLength(1);
  },
);

verifies("TURN-STALLED", "waiting for a person is no stall", async () => {
  await using host = await openSessionHost({}, { stallMs: 100 });
  const session = await host.create();
  using watched = watchSession(session);
  await session.turn(query("!ask"), ACTOR);
  const opened = await watched.first((event) => event.event_type === "request.opened");
  const other = await host.create();
  using stall = watchSession(other);
  await other.turn(query("!stall"), ACTOR);
  await stall.first((event) => event.event_type === "turn.stalled");
  expect(watched.of("turn.stalled")).toEqual([]);
  await session.command(answer(String(opened.payload.request_id), { behavior: "deny", message: "no" }), ACTOR);
});

verifies(
  "AGENT-CRASH-LOOP",
  "an agent that dies of each message is restarted later and later, then the session fails with the reason; the next message tries again",
  async () => {
    await using host = await openSessionHost();
    const session = await host.create();
    using watched = watchSession(session);
    const turns = await Promise.all(
      ["!kill", "!kill", "!kill", "four"].map((text) => session.turn(query(text), ACTOR)),
    );
    const ends = await Promise.all(turns.map((turn) => turn.ended));
    expect(ends.map((end) => end.reason)).toEqual([
      "agent_exited",
      "agent_exited",
      "agent_exited",
      "agent_start_failed",
    ]);
    expect(session.view()).toMatchObject({ state: "failed", reason: expect.stringContaining("SIGKILL") });
    const [first = 0, second = 0, third = 0] = watched.of("agent.started").map((event) => event.timestamp_ms);
    const exits = watched.of("agent.exited").map((event) => event.timestamp_ms);
    expect(second - (exits[0] ?? first)).toBeGreaterThanOrEqual(250);
    expect(third - (exits[1] ?? second)).toBeGreaterThanOrEqual(500);
    expect(await (await session.turn(query("five"), ACTOR)).ended).toMatchObject({ outcome: "completed" });
  },
);

verifies(
  "P3-MESSAGE-ONCE",
  "a message that a dead process had not taken is sent to the next one under its own uuid; one that was taken is not",
  async () => {
    await using host = await openSessionHost();
    const session = await host.create();
    using watched = watchSession(session);
    await (await session.turn(query("one"), ACTOR)).ended;
    const pid = pidOf(session);
    // It stops before it reads what is written now.
    process.kill(pid, "SIGSTOP");
    const turn = await session.turn(query("two"), ACTOR);
    await watched.first((event) => event.event_type === "turn.started" && event.turn_id === turn.turn_id);
    process.kill(pid, "SIGKILL");
    expect(await turn.ended).toMatchObject({ outcome: "completed" });
    await watched.first((event) => event.event_type === "turn.completed" && event.turn_id === turn.turn_id);
    const told = watched.events.filter((event) => event.turn_id === turn.turn_id).map((event) => event.event_type);
    expect(told.filter((type) => type.startsWith("turn."))).toEqual(["turn.started", "turn.queued", "turn.completed"]);
    const echoes = watched.of("user").filter((event) => event.payload.uuid === turn.turn_id);
    expect(echoes).toHaveLength(1);
    const taken = await session.turn(query("!stall"), ACTOR);
    await watched.first((event) => event.event_type === "user" && event.turn_id === taken.turn_id);
    process.kill(pidOf(session), "SIGKILL");
    expect(await taken.ended).toMatchObject({ outcome: "failed", reason: "agent_exited" });
    await (await session.turn(query("four"), ACTOR)).ended;
    expect(watched.of("user").filter((event) => event.payload.uuid === taken.turn_id)).toHaveLength(1);
  },
);

verifies(
  "P7-ONE-AGENT",
  "known bug 7: twenty messages at once to a sleeping session, one right after an interrupt and some while it falls asleep: one process at a time",
  async () => {
    await using host = await openSessionHost({}, { idleTimeoutMs: 1 });
    const session = await host.create();
    using watched = watchSession(session);
    const turns = await Promise.all(Array.from({ length: 20 }, (_, index) => session.turn(query(`m${index}`), ACTOR)));
    for (const turn of turns) expect(await turn.ended).toMatchObject({ outcome: "completed" });
    const long = await session.turn(query("!stall"), ACTOR);
    await watched.first((event) => event.event_type === "user" && event.turn_id === long.turn_id);
    const [, next] = await Promise.all([
      session.command(control("interrupt"), ACTOR),
      session.turn(query("after the interrupt"), ACTOR),
    ]);
    expect(await long.ended).toMatchObject({ reason: "interrupted" });
    expect(await next.ended).toMatchObject({ outcome: "completed" });
    await watched.first(stateTold("hibernated", next.seq));
    // Each process ends before the next one starts, and no two ever live.
    const lives = watched.events
      .map((event) => event.event_type)
      .filter((type) => type === "agent.started" || type === "agent.exited");
    expect(lives).toEqual(lives.map((_, index) => (index % 2 === 0 ? "agent.started" : "agent.exited")));
    expect(watched.of("user").filter((event) => event.payload.isReplay === true)).toHaveLength(22);
  },
);

verifies(
  "SESSION-RESUME",
  "known bug 23: a process that dies before its first turn is followed by a new conversation, one that dies after it by a resumed one",
  async () => {
    await using host = await openSessionHost();
    const session = await host.create();
    using watched = watchSession(session);
    await session.command(control("set_model", { model: "m" }), ACTOR);
    await watched.first((event) => event.event_type === "control_response" && event.command_id !== undefined);
    process.kill(pidOf(session), "SIGKILL");
    const exited = await watched.first((event) => event.event_type === "agent.exited");
    expect(await (await session.turn(query("one"), ACTOR)).ended).toMatchObject({ outcome: "completed" });
    process.kill(pidOf(session), "SIGKILL");
    await watched.first((event) => event.event_type === "agent.exited" && event.seq > exited.seq);
    expect(await (await session.turn(query("two"), ACTOR)).ended).toMatchObject({ outcome: "completed" });
    expect(watched.of("agent.started").map((event) => event.payload.resumed)).toEqual([false, false, true]);
  },
);

verifies("AUDIT", "a change of a session that cannot be stored has not happened, and is not told", async () => {
  await using host = await openSessionHost();
  const session = await host.create({ name: "before" });
  const refuse = "CREATE TRIGGER no_names BEFORE UPDATE OF name ON sessions BEGIN SELECT RAISE(ABORT, 'no'); END";
  await host.store.write([{ sql: refuse, params: [] }]);
  await expect(session.update({ name: "after" }, ACTOR)).rejects.toThrow();
  expect(session.view().name).toBe("before");
  await host.store.write([{ sql: "DROP TRIGGER no_names", params: [] }]);
  expect(await session.update({ name: "later" }, ACTOR)).toMatchObject({ name: "later" });
});
