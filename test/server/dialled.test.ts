import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect } from "vitest";
import { isAlive, readProcess } from "../../src/agents/process-table.ts";
import type { Envelope } from "../../src/protocol/events.ts";
import { isJsonObject } from "../../src/protocol/json.ts";
import { startDevbox } from "../kit/dialled-runner.ts";
import { startFaultProxy } from "../kit/fault-proxy.ts";
import { makeKillableServer } from "../kit/killable-server.ts";
import { startServer, type TestServer } from "../kit/server.ts";
import { verifies } from "../kit/verifies.ts";

const field = (payload: unknown, name: string): unknown => (isJsonObject(payload) ? payload[name] : undefined);
const ended = (turn: string) => (event: Envelope) =>
  event.turn_id === turn && (event.event_type === "turn.completed" || event.event_type === "turn.failed");
const of = (type: string) => (event: Envelope) => event.event_type === type;

async function send(server: { call: TestServer["call"] }, id: string, text: string): Promise<string> {
  const { status, body } = await server.call("POST", `/v1/sessions/${id}/turns`, { body: { text } });
  expect(status).toBe(202);
  return body.turn_id;
}

/** What the agent of `!dump` says of itself. */
function dumpOf(events: readonly Envelope[]) {
  const said = events.findLast(of("assistant"));
  const content = field(field(said?.payload, "message"), "content");
  return JSON.parse(String(field(Array.isArray(content) ? content[0] : undefined, "text")));
}

function expectOnce(events: readonly Envelope[]): void {
  const numbers = events.map((event) => event.seq);
  expect(numbers).toEqual([...new Set(numbers)].sort((a, b) => a - b));
}

const runs = (pid: unknown): boolean => {
  const entry = readProcess(Number(pid));
  return entry !== undefined && isAlive(entry);
};

verifies(
  "DIAL-IN",
  "a session that asks for labels waits for a runner that has them, and gets that machine's CLI, folders and variables",
  async () => {
    await using server = await startServer({ options: { agentEnv: { ANTHROPIC_API_KEY: "the-servers-own" } } });
    const { key } = await server.key(["runner"]);
    const session = await server.session({ runner: { labels: { gpu: "yes" }, when_away: "wait" } });
    const socket = await server.socket({ query: `?session=${session.id}&after=0` });
    const turn = await send(server, session.id, "!dump");
    const waits = await socket.next("event", (event) => field(event.payload, "reason") !== undefined);
    expect(waits.payload).toEqual({
      state: "starting",
      reason: "It waits for a runner with the labels gpu=yes.",
    });
    await using other = startDevbox({ broker: server.url, key, name: "plain" });
    await other.said("linked");
    await using box = startDevbox({
      broker: server.url,
      key,
      name: "big",
      labels: { gpu: "yes", os: "linux" },
      env: { PATCHBAY_AGENT_ENV_ANTHROPIC_API_KEY: "the-boxes-own" },
    });
    await socket.next("event", ended(turn));
    const dump = dumpOf(socket.events(session.id));
    expect(dump.cwd.startsWith(box.dataDir)).toBe(true);
    expect(dump.env.ANTHROPIC_API_KEY).toBe("the-boxes-own");
    const { body } = await server.call("GET", `/v1/sessions/${session.id}`);
    expect(body.runner).toEqual({ labels: { gpu: "yes" }, when_away: "wait", name: "big" });
    const { runners } = (await server.call("GET", "/v1/runners")).body;
    expect(runners).toEqual([
      expect.objectContaining({ name: "big", labels: { gpu: "yes", os: "linux" }, linked: true, agents: 1 }),
      expect.objectContaining({ name: "plain", labels: {}, linked: true, agents: 0 }),
    ]);
    const purged = await server.call("DELETE", `/v1/sessions/${session.id}?purge=true`);
    expect(purged.status).toBe(204);
    expect(runs(dump.pid)).toBe(false);
  },
);

verifies(
  "DIAL-IN",
  "with PATCHBAY_RUNNER=none a session without a wish lives on a runner that dials in, too",
  async () => {
    await using server = await startServer({ options: { runner: "none", claudeBin: "/nowhere/claude" } });
    expect((await server.call("GET", "/readyz")).status).toBe(200);
    const session = await server.session();
    const turn = await send(server, session.id, "hello");
    const { key } = await server.key(["runner"]);
    await using box = startDevbox({ broker: server.url, key });
    await box.said("linked");
    const socket = await server.socket({ query: `?session=${session.id}&after=0` });
    expect((await socket.next("event", ended(turn))).event_type).toBe("turn.completed");
    // It stays there, whatever runner the next server has of its own.
    const view = (await server.call("GET", `/v1/sessions/${session.id}`)).body;
    expect(view.runner).toEqual({ labels: {}, when_away: "wait", name: "box" });
  },
);

verifies(
  "RUNNER-LINK",
  "behind a proxy that cuts every connection, again and again and at random bytes, a session sees every event once and every answer arrives",
  async () => {
    await using server = await startServer();
    await using proxy = await startFaultProxy(server.broker.port);
    const { key } = await server.key(["runner"]);
    await using box = startDevbox({ broker: proxy.url, key });
    await box.said("linked");
    const session = await server.session({ runner: { labels: {}, when_away: "wait" } });
    const socket = await server.socket({ query: `?session=${session.id}&after=0` });
    const turn = await send(server, session.id, "!until stop 400 1");
    for (let cuts = 0; cuts < 4; cuts += 1) {
      const before = socket.events(session.id).at(-1)?.seq ?? 0;
      await socket.next("event", (event) => event.seq > before + 40 && event.event_type === "tool_progress");
      // The next one, too, in the middle of a frame.
      proxy.cutNextAfter(20_000 + cuts * 1777, cuts % 2 === 0 ? "client" : "server");
      const made = proxy.connections();
      proxy.cut();
      await expect.poll(() => proxy.connections(), { interval: 10, timeout: 10_000 }).toBeGreaterThan(made);
    }
    const asked = await send(server, session.id, "!ask");
    writeFileSync(join(box.dataDir, "workspaces", "default", session.cwd, "stop"), "");
    const opened = await socket.next("event", of("request.opened"));
    proxy.cut();
    const response = {
      subtype: "success",
      request_id: field(opened.payload, "request_id"),
      response: { behavior: "allow" },
    };
    const payload = { type: "control_response", response };
    const body = { id: "answer", event_type: "control_response", payload };
    expect((await server.call("POST", `/v1/sessions/${session.id}/commands`, { body })).status).toBe(202);
    await socket.next("event", ended(asked));
    const events = socket.events(session.id);
    expectOnce(events);
    expect(events.filter(of("agent.started"))).toHaveLength(1);
    expect(events.filter(of("turn.completed")).map((event) => event.turn_id)).toEqual([turn, asked]);
    const numbers = events
      .filter(of("tool_progress"))
      .map((event) => Number(field(event.payload, "elapsed_time_seconds")));
    expect(numbers.length).toBeGreaterThan(30);
    expect(numbers).toEqual(
      numbers.map((_, index) => (numbers[0] ?? 0) + index * ((numbers[1] ?? 0) - (numbers[0] ?? 0))),
    );
    expect(proxy.connections()).toBeGreaterThan(4);
  },
);

verifies(
  "RUNNER-KEY",
  "no key, a wrong one, one without the role and a revoked one are refused; revoking ends the link and the agents",
  async () => {
    await using server = await startServer();
    const plain = await server.call("GET", "/v1/runner?name=box&instance=0123456789abcdef&process=0123456789abcdef");
    expect(plain.status).toBe(400);
    const driver = await server.key(["driver", "approver"]);
    for (const key of ["pb_wrong_0123456789", driver.key]) {
      await using box = startDevbox({ broker: server.url, key });
      expect((await box.exited()).code).toBe(1);
      expect(box.lines.join("\n")).toMatch(/refused this runner\. (unauthenticated|forbidden)/);
    }
    const { id, key } = await server.key(["runner"]);
    await using box = startDevbox({ broker: server.url, key });
    await box.said("linked");
    const session = await server.session({ runner: { labels: {}, when_away: "fail" } });
    const socket = await server.socket({ query: `?session=${session.id}&after=0` });
    await send(server, session.id, "!until stop 20 5");
    const { payload } = await socket.next("event", of("agent.started"));
    expect(runs(field(payload, "pid"))).toBe(true);
    const revokedAtMs = performance.now();
    expect((await server.call("DELETE", `/v1/keys/${id}`)).status).toBe(200);
    await box.said("expired");
    expect(performance.now() - revokedAtMs).toBeLessThan(2000);
    expect((await box.exited()).code).toBe(1);
    expect(runs(field(payload, "pid"))).toBe(false);
  },
);

verifies("RUNNER-KEY", "a runner's key can do nothing else", async () => {
  await using server = await startServer();
  const { key } = await server.key(["runner"]);
  const session = await server.session();
  for (const [method, path] of [
    ["GET", "/v1/sessions"],
    ["GET", `/v1/sessions/${session.id}`],
    ["GET", "/v1/runners"],
    ["POST", "/v1/sessions"],
    ["GET", "/v1/keys"],
  ] as const) {
    const { status } = await server.call(method, path, { key, ...(method === "POST" && { body: {} }) });
    expect({ path, status }).toEqual({ path, status: 403 });
  }
});

verifies(
  "RUNNER-IDENTITY",
  "another machine of the same name is refused while the first one is linked; another tenant's is not",
  async () => {
    await using server = await startServer();
    const { key } = await server.key(["runner"]);
    await using first = startDevbox({ broker: server.url, key });
    await first.said("linked");
    const session = await server.session({ runner: { labels: {}, when_away: "wait" } });
    const socket = await server.socket({ query: `?session=${session.id}&after=0` });
    const turn = await send(server, session.id, "!until stop 20 5");
    await socket.next("event", of("tool_progress"));
    await using second = startDevbox({ broker: server.url, key });
    await second.said("runner_in_use");
    const foreign = await server.key(["runner"], "other");
    await using third = startDevbox({ broker: server.url, key: foreign.key });
    await third.said("linked");
    // The name is kept for the first machine for a while after it has gone.
    const from = second.lines.length;
    first.process.kill("SIGKILL");
    await first.exited();
    await second.said("was linked less than", from);
    expect((await server.call("GET", `/v1/sessions/${session.id}`)).body.runner.name).toBe("box");
    expect(second.lines.join("\n")).not.toContain("linked to");
    first.start();
    await first.said("linked", first.lines.length);
    expect((await socket.next("event", ended(turn))).event_type).toBe("turn.failed");
    const next = await send(server, session.id, "hello");
    expect((await socket.next("event", ended(next))).event_type).toBe("turn.completed");
    expect(second.lines.join("\n")).not.toContain("linked to");
  },
);

verifies(
  "RUNNER-RESTART",
  "kill -9 of the server in the middle of a devbox's turn: the turn goes on, nothing comes twice, and an answer given before reaches the agent once",
  async () => {
    await using server = makeKillableServer({ runner: "none" });
    let life = await server.start();
    const made = await life.call("POST", "/v1/keys", { body: { roles: ["runner"] } });
    await using proxy = await startFaultProxy(() => Number(new URL(life.url).port));
    await using box = startDevbox({ broker: proxy.url, key: made.body.key });
    await box.said("linked");
    const { body } = await life.call("POST", "/v1/sessions", { body: {} });
    const turn = await send(life, body.id, "!until stop 40 2");
    const seen: Envelope[] = [];
    let cursor = 0;
    for (let lives = 0; lives < 2; lives += 1) {
      const socket = await life.socket({ query: `?session=${body.id}&after=${cursor}` });
      await socket.next("event", (event) => event.seq > cursor + 30 && event.event_type === "tool_progress");
      await server.kill();
      seen.push(...socket.events(body.id));
      cursor = seen.at(-1)?.seq ?? 0;
      life = await server.start();
    }
    writeFileSync(join(box.dataDir, "workspaces", "default", body.cwd, "stop"), "");
    const socket = await life.socket({ query: `?session=${body.id}&after=${cursor}` });
    await socket.next("event", ended(turn));
    seen.push(...socket.events(body.id));
    expectOnce(seen);
    const count = (type: string): number => seen.filter(of(type)).length;
    expect([count("agent.started"), count("turn.completed"), count("session.recovered")]).toEqual([1, 1, 0]);
  },
);
