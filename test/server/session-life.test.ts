import { expect, test } from "vitest";
import { isAlive as isLiving, readProcess } from "../../src/agents/process-table.ts";
import { isJsonObject } from "../../src/protocol/json.ts";
import type { Session } from "../../src/sessions/port.ts";
import { ACTOR, control, openSessionHost, problemOf, query, watchSession } from "../kit/session-host.ts";
import { verifies } from "../kit/verifies.ts";

function pidOf(session: Session): number {
  const { pid } = session.view().agent;
  if (pid === undefined) throw new Error("the session has no process");
  return pid;
}

/** A zombie that nobody has reaped yet counts as dead. */
function isAlive(pid: number): boolean {
  const entry = readProcess(pid);
  return entry !== undefined && isLiving(entry);
}

verifies(
  "SESSION-RESUME",
  "SIGKILL in mid-turn is noticed within a second; queued messages and the next ones run in a resumed process",
  async () => {
    await using host = await openSessionHost();
    const session = await host.create();
    using watched = watchSession(session);
    await (await session.turn(query("one"), ACTOR)).ended;
    const cliSession = session.view().agent.cli_session_id;
    const stalled = await session.turn(query("!stall"), ACTOR);
    await watched.first((event) => event.event_type === "user" && event.turn_id === stalled.turn_id);
    const queued = await session.turn(query("two"), ACTOR);
    const first = pidOf(session);
    const killedAt = performance.now();
    process.kill(first, "SIGKILL");
    expect(await stalled.ended).toMatchObject({ outcome: "failed", reason: "agent_exited" });
    expect(performance.now() - killedAt).toBeLessThan(1000);
    expect(await queued.ended).toMatchObject({ outcome: "completed" });
    await watched.first((event) => event.event_type === "turn.completed" && event.turn_id === queued.turn_id);
    expect(watched.of("agent.started").map((event) => event.payload.resumed)).toEqual([false, true]);
    expect(watched.of("agent.started")[1]?.payload.cli_session_id).toBe(cliSession);
    expect(pidOf(session)).not.toBe(first);
  },
);

verifies(
  "SESSION-CLEAR",
  "known bug 22: /clear changes the CLI's session id, not ours; the next process resumes the new one",
  async () => {
    await using host = await openSessionHost();
    const session = await host.create();
    using watched = watchSession(session);
    await (await session.turn(query("one"), ACTOR)).ended;
    const before = session.view();
    await (await session.turn(query("/clear"), ACTOR)).ended;
    await (await session.turn(query("two"), ACTOR)).ended;
    const after = session.view();
    expect(after.id).toBe(before.id);
    expect(after.agent.cli_session_id).not.toBe(before.agent.cli_session_id);
    process.kill(pidOf(session), "SIGKILL");
    await watched.first((event) => event.event_type === "agent.exited");
    expect(await (await session.turn(query("three"), ACTOR)).ended).toMatchObject({ outcome: "completed" });
    expect(watched.of("agent.started").at(-1)?.payload).toMatchObject({
      resumed: true,
      cli_session_id: after.agent.cli_session_id,
    });
  },
);

verifies(
  "P7-ONE-AGENT",
  "twenty first messages at once, and more while the process starts, make one process",
  async () => {
    await using host = await openSessionHost({ startDelayMs: 100 });
    const session = await host.create();
    using watched = watchSession(session);
    const turns = await Promise.all(Array.from({ length: 20 }, (_, index) => session.turn(query(`m${index}`), ACTOR)));
    const controls = Promise.all([
      session.command(control("get_context_usage"), ACTOR),
      host.sessions.find(session.id, "default"),
    ]);
    await controls;
    const ends = await Promise.all(turns.map((turn) => turn.ended));
    expect(new Set(ends.map((end) => end.outcome))).toEqual(new Set(["completed"]));
    await watched.first((event) => event.event_type === "turn.completed" && event.turn_id === turns[19]?.turn_id);
    expect(watched.of("agent.started")).toHaveLength(1);
  },
);

verifies(
  "SESSION-RECOVER",
  "a restart between turns: the session, its numbers and its conversation are there, the next message works",
  async () => {
    await using host = await openSessionHost();
    const session = await host.create({ name: "kept", metadata: { team: "a" } });
    await (await session.turn(query("one"), ACTOR)).ended;
    const before = session.view();
    await using again = await host.reopen();
    const same = await again.sessions.find(session.id, "default");
    if (same === undefined) throw new Error("the session is gone");
    expect(same.view()).toMatchObject({ name: "kept", metadata: { team: "a" }, state: "hibernated" });
    expect(same.view().head).toBeGreaterThanOrEqual(before.head);
    using watched = watchSession(same);
    expect(await (await same.turn(query("two"), ACTOR)).ended).toMatchObject({ outcome: "completed" });
    await watched.first((event) => event.event_type === "turn.completed" && event.seq > before.head);
    const numbers = watched.events.map((event) => event.seq);
    expect(numbers).toEqual([...new Set(numbers)].sort((a, b) => a - b));
    expect(watched.of("agent.started").at(-1)?.payload.resumed).toBe(true);
  },
);

test.each([
  ["exits at once", { exitCode: 7, stderr: "no licence\n" }, 20_000, /exit code 7.*no licence/s],
  ["never answers initialize", { silentInitialize: true }, 400, /did not answer initialize/],
  ["closes its stdin", { closeStdin: true }, 400, /did not answer|ended/],
])("[AGENT-SPAWN-FAILS] an agent that %s fails its session only", async (_what, behaviour, startTimeoutMs, message) => {
  await using host = await openSessionHost(behaviour, { startTimeoutMs });
  const session = await host.create();
  const turn = await session.turn(query("x".repeat(1_000_000)), ACTOR);
  const end = await turn.ended;
  expect(end).toMatchObject({ outcome: "failed", reason: "agent_start_failed" });
  expect(session.view()).toMatchObject({ state: "failed" });
  expect(session.view().reason).toMatch(message);
  expect(host.reports).toEqual([]);
  // The next message tries again.
  expect((await (await session.turn(query("again"), ACTOR)).ended).reason).toBe("agent_start_failed");
});

verifies(
  "AGENT-STOP",
  "ending a session stops the process and all that it started; the session stays readable and takes no more",
  async () => {
    await using host = await openSessionHost();
    const session = await host.create();
    using watched = watchSession(session);
    const child = await (await session.turn(query("!child"), ACTOR)).ended;
    const childPid = Number(/\d+/.exec(isJsonObject(child.result) ? String(child.result.result) : "")?.[0]);
    expect(isAlive(childPid)).toBe(true);
    const agentPid = pidOf(session);
    const running = await session.turn(query("!stall"), ACTOR);
    await session.end();
    expect(await running.ended).toMatchObject({ turn_id: running.turn_id });
    expect([isAlive(agentPid), isAlive(childPid)]).toEqual([false, false]);
    expect(session.view().state).toBe("ended");
    expect(await problemOf(session.command(query("more"), ACTOR))).toBe("session_ended");
    await watched.first((event) => event.event_type === "session.state" && event.payload.state === "ended");
    expect(watched.of("agent.exited")).toHaveLength(1);
    await session.end();
  },
);

test("purge removes the log, the row and the folders; the id is then unknown", async () => {
  await using host = await openSessionHost();
  const session = await host.create();
  await (await session.turn(query("one"), ACTOR)).ended;
  await host.sessions.purge(session.id);
  expect(await host.sessions.find(session.id, "default")).toBeUndefined();
  const rows = await Promise.all(
    ["events", "commands", "used_ids"].map((table) => host.store.read(`SELECT 1 FROM ${table}`)),
  );
  expect(rows.flat()).toEqual([]);
});

verifies(
  "IDEMPOTENCY",
  "a creation retried under its key is one session and one prompt, also at the same time and after a restart",
  async () => {
    await using host = await openSessionHost();
    const owner = { tenant: "default", actor: ACTOR, idempotencyKey: "k1" };
    const [a, b] = await Promise.all([
      host.sessions.create({ prompt: "hi" }, owner),
      host.sessions.create({ prompt: "hi" }, owner),
    ]);
    expect(a.id).toBe(b.id);
    expect(await problemOf(host.sessions.create({ prompt: "other" }, owner))).toBe("id_reused");
    await using again = await host.reopen();
    expect((await again.sessions.create({ prompt: "hi" }, owner)).id).toBe(a.id);
    const session = await again.sessions.find(a.id, "default");
    const page = await session?.log.page({ after: 0 as never, limit: 100, eventType: "query", restricted: true });
    expect(page?.events).toHaveLength(1);
  },
);
