import { existsSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect } from "vitest";
import { isAlive, readProcess } from "../../src/agents/process-table.ts";
import type { Envelope } from "../../src/protocol/events.ts";
import { startDevbox } from "../kit/dialled-runner.ts";
import { startFaultProxy } from "../kit/fault-proxy.ts";
import { payloadField as field } from "../kit/payload-field.ts";
import { startServer, type TestServer } from "../kit/server.ts";
import { makeTempDir } from "../kit/temp-dir.ts";
import { verifies } from "../kit/verifies.ts";

/** Away for good after this: what takes a minute in production. */
const runners = { failAfterMs: 600, firstRunnerMs: 200, joinMs: 400 };
const ended = (turn: string) => (event: Envelope) =>
  event.turn_id === turn && (event.event_type === "turn.completed" || event.event_type === "turn.failed");
const of = (type: string) => (event: Envelope) => event.event_type === type;
const runs = (pid: unknown): boolean => {
  const entry = readProcess(Number(pid));
  return entry !== undefined && isAlive(entry);
};

async function send(server: TestServer, id: string, text: string): Promise<string> {
  const { status, body } = await server.call("POST", `/v1/sessions/${id}/turns`, { body: { text } });
  expect(status).toBe(202);
  return body.turn_id;
}

/** A server, a way to it that can be closed, a devbox behind that, and a session on it whose first turn is done. */
async function setUp(whenAway: "wait" | "fail") {
  const stack = new AsyncDisposableStack();
  const server = stack.use(await startServer({ tuning: { runners } }));
  const proxy = stack.use(await startFaultProxy(server.broker.port));
  const { key } = await server.key(["runner"]);
  const box = stack.use(startDevbox({ broker: proxy.url, key, labels: { zone: "a" } }));
  await box.said("linked");
  const session = await server.session({ runner: { labels: { zone: "a" }, when_away: whenAway } });
  const socket = await server.socket({ query: `?session=${session.id}&after=0` });
  await socket.next("event", ended(await send(server, session.id, "first")));
  const folder = join(box.dataDir, "workspaces", "default", session.cwd);
  return { server, proxy, box, session, socket, key, folder, [Symbol.asyncDispose]: () => stack.disposeAsync() };
}

verifies(
  "RUNNER-AWAY",
  "wait: a runner that is stopped in the middle of a turn is told as away; what is sent meanwhile reaches the agent when it is back; nothing is lost",
  async () => {
    await using world = await setUp("wait");
    const { server, proxy, session, socket, folder } = world;
    const turn = await send(server, session.id, "!until stop 20 5");
    await socket.next("event", of("tool_progress"));
    proxy.refuse(true);
    proxy.cut();
    await socket.next("event", of("agent.away"));
    const queued = await send(server, session.id, "meanwhile");
    writeFileSync(join(folder, "stop"), "");
    proxy.refuse(false);
    await socket.next("event", of("agent.back"));
    await socket.next("event", ended(queued));
    const events = socket.events(session.id);
    const terminal = events.filter(
      (event) => event.event_type.startsWith("turn.") && ended(event.turn_id ?? "")(event),
    );
    expect(terminal.slice(1).map(({ turn_id, event_type }) => [turn_id, event_type])).toEqual([
      [turn, "turn.completed"],
      [queued, "turn.completed"],
    ]);
    expect(events.filter(of("agent.started"))).toHaveLength(1);
  },
);

verifies(
  "RUNNER-AWAY",
  "fail: after a while the agent is given up and its turn fails; the next message starts on another runner; the old agent ends when its runner is back",
  async () => {
    await using world = await setUp("fail");
    const { server, proxy, box, session, socket, key, folder } = world;
    const turn = await send(server, session.id, "!until stop 20 5");
    await socket.next("event", of("tool_progress"));
    const pid = field(socket.events(session.id).find(of("agent.started")), "pid");
    proxy.refuse(true);
    proxy.cut();
    const exited = await socket.next("event", of("agent.exited"));
    expect(exited.payload).toMatchObject({ lost: true });
    const failed = await socket.next("event", ended(turn));
    expect([failed.event_type, field(failed, "reason")]).toEqual(["turn.failed", "agent_exited"]);
    await using other = startDevbox({ broker: server.url, key, name: "other", labels: { zone: "a" } });
    await other.said("linked");
    const next = await send(server, session.id, "!dump");
    expect((await socket.next("event", ended(next))).event_type).toBe("turn.completed");
    expect((await server.call("GET", `/v1/sessions/${session.id}`)).body.runner.name).toBe("other");
    expect(runs(pid)).toBe(true);
    expect(existsSync(folder)).toBe(true);
    expect((await server.call("DELETE", `/v1/sessions/${session.id}?purge=true`)).status).toBe(204);
    const from = box.lines.length;
    proxy.refuse(false);
    await box.said("linked", from);
    // What it left on the first machine goes, too.
    await expect.poll(() => [runs(pid), existsSync(folder)], { interval: 20, timeout: 5000 }).toEqual([false, false]);
  },
);

verifies(
  "RUNNER-AWAY",
  "fail: without any runner the message fails in time, with what to do; the next one tries again",
  async () => {
    await using server = await startServer({ tuning: { runners } });
    const session = await server.session({ runner: { labels: { zone: "b" }, when_away: "fail" } });
    const socket = await server.socket({ query: `?session=${session.id}&after=0` });
    const turn = await send(server, session.id, "hello");
    expect((await socket.next("event", ended(turn))).event_type).toBe("turn.failed");
    const view = (await server.call("GET", `/v1/sessions/${session.id}`)).body;
    expect(view.state).toBe("failed");
    expect(view.reason).toContain("a runner with the labels zone=b");
    const { key } = await server.key(["runner"]);
    await using box = startDevbox({ broker: server.url, key, labels: { zone: "b" } });
    await box.said("linked");
    const next = await send(server, session.id, "hello");
    expect((await socket.next("event", ended(next))).event_type).toBe("turn.completed");
  },
);

verifies(
  "RUNNER-AWAY",
  "a session whose runner is away ends and is purged without it; its agent and folders go when the runner is back",
  async () => {
    await using world = await setUp("wait");
    const { server, proxy, box, session, socket, folder } = world;
    const pid = field(socket.events(session.id).find(of("agent.started")), "pid");
    proxy.refuse(true);
    proxy.cut();
    await socket.next("event", of("agent.away"));
    expect((await server.call("DELETE", `/v1/sessions/${session.id}?purge=true`)).status).toBe(204);
    expect([runs(pid), existsSync(folder)]).toEqual([true, true]);
    const from = box.lines.length;
    proxy.refuse(false);
    await box.said("linked", from);
    await expect.poll(() => [runs(pid), existsSync(folder)], { interval: 20, timeout: 5000 }).toEqual([false, false]);
  },
);

verifies(
  "RUNNER-AWAY",
  "a runner that is killed takes its agents with it, and is started again: the session goes on there, from its transcript",
  async () => {
    await using world = await setUp("wait");
    const { server, box, session, socket } = world;
    const turn = await send(server, session.id, "!until stop 20 5");
    await socket.next("event", of("tool_progress"));
    const pid = field(socket.events(session.id).find(of("agent.started")), "pid");
    box.process.kill("SIGKILL");
    await box.exited();
    box.start();
    expect((await socket.next("event", ended(turn))).event_type).toBe("turn.failed");
    expect(runs(pid)).toBe(false);
    const next = await send(server, session.id, "hello");
    expect((await socket.next("event", ended(next))).event_type).toBe("turn.completed");
    expect(field(socket.events(session.id).findLast(of("agent.started")), "resumed")).toBe(true);
  },
);

verifies(
  "RUNNER-RESTART",
  "a server that starts while the runner is away opens the session without it, takes messages, and takes the agent up when it is back",
  async () => {
    using folder = makeTempDir();
    const options = { dataDir: join(folder.path, "data") };
    let server = await startServer({ options, tuning: { runners } });
    await using proxy = await startFaultProxy(() => server.broker.port);
    const { key } = await server.key(["runner"]);
    await using box = startDevbox({ broker: proxy.url, key });
    await box.said("linked");
    const session = await server.session({ runner: { labels: {}, when_away: "wait" } });
    const before = await server.socket({ query: `?session=${session.id}&after=0` });
    const turn = await send(server, session.id, "!until stop 20 5");
    await before.next("event", of("tool_progress"));
    proxy.refuse(true);
    await server[Symbol.asyncDispose]();
    const seen = before.events(session.id);
    server = await startServer({ options, tuning: { runners } });
    try {
      const socket = await server.socket({ query: `?session=${session.id}&after=${seen.at(-1)?.seq ?? 0}` });
      await socket.next("event", of("session.recovered"));
      await socket.next("event", of("agent.away"));
      const queued = await send(server, session.id, "meanwhile");
      writeFileSync(join(box.dataDir, "workspaces", "default", session.cwd, "stop"), "");
      proxy.refuse(false);
      await socket.next("event", ended(queued));
      const events = [...seen, ...socket.events(session.id)];
      const numbers = events.map((event) => event.seq);
      expect(numbers).toEqual([...new Set(numbers)].sort((a, b) => a - b));
      expect(events.filter(of("agent.started"))).toHaveLength(1);
      expect(events.filter(of("turn.completed")).map((event) => event.turn_id)).toEqual([turn, queued]);
      const steps = events.filter(of("tool_progress")).map((event) => Number(field(event, "elapsed_time_seconds")));
      expect(steps).toEqual(steps.map((_, index) => (index + 1) * 10));
    } finally {
      await server[Symbol.asyncDispose]();
    }
  },
);

verifies("RUNNER-RESTART", "a runner whose broker stays away stops its agents in order, and stays", async () => {
  await using server = await startServer();
  await using proxy = await startFaultProxy(server.broker.port);
  const { key } = await server.key(["runner"]);
  await using box = startDevbox({ broker: proxy.url, key, awayMs: 200 });
  await box.said("linked");
  const session = await server.session({ runner: { labels: {}, when_away: "wait" } });
  const socket = await server.socket({ query: `?session=${session.id}&after=0` });
  const turn = await send(server, session.id, "!until stop 20 5");
  const started = await socket.next("event", of("agent.started"));
  await socket.next("event", of("tool_progress"));
  proxy.refuse(true);
  proxy.cut();
  await box.said("agents are stopped");
  await expect.poll(() => runs(field(started, "pid")), { interval: 20, timeout: 9000 }).toBe(false);
  proxy.refuse(false);
  expect((await socket.next("event", ended(turn))).event_type).toBe("turn.failed");
  const next = await send(server, session.id, "hello");
  expect((await socket.next("event", ended(next))).event_type).toBe("turn.completed");
});
