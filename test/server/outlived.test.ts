import { randomUUID } from "node:crypto";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect } from "vitest";
import { isAlive, readProcess } from "../../src/agents/process-table.ts";
import type { Envelope } from "../../src/protocol/events.ts";
import { isJsonObject } from "../../src/protocol/json.ts";
import { makeKillableServer, type ServerProcess } from "../kit/killable-server.ts";
import { runnerPid } from "../kit/runner-process.ts";
import { verifies } from "../kit/verifies.ts";

const field = (payload: unknown, name: string): unknown => (isJsonObject(payload) ? payload[name] : undefined);

async function send(life: ServerProcess, id: string, text: string): Promise<string> {
  const { status, body } = await life.call("POST", `/v1/sessions/${id}/turns`, { body: { text } });
  expect(status).toBe(202);
  return body.turn_id;
}

for (const end of ["SIGKILL", "SIGTERM"] as const) {
  verifies(
    "SERVER-OUTLIVED",
    `three lives of the server, each ended by ${end} in the middle of one turn: one process, one turn, every number once`,
    async () => {
      await using server = makeKillableServer({ runner: "auto" });
      let life = await server.start();
      const { body } = await life.call("POST", "/v1/sessions", { body: {} });
      const runner = runnerPid(server.dataDir);
      const turn = await send(life, body.id, "!until stop 40 2");
      const queued = await send(life, body.id, "after");
      const seen: Envelope[] = [];
      let cursor = 0;
      for (let lives = 0; lives < 3; lives += 1) {
        const socket = await life.socket({ query: `?session=${body.id}&after=${cursor}` });
        await socket.next("event", (event) => event.seq > cursor + 30 && event.event_type === "tool_progress");
        life.process.kill(end);
        await life.exited;
        seen.push(...socket.events(body.id));
        cursor = seen.at(-1)?.seq ?? 0;
        life = await server.start();
      }
      expect(runnerPid(server.dataDir)).toBe(runner);
      writeFileSync(join(server.dataDir, "workspaces", "default", body.cwd, "stop"), "");
      const socket = await life.socket({ query: `?session=${body.id}&after=${cursor}` });
      await socket.next("event", (event) => event.event_type === "turn.completed" && event.turn_id === queued);
      seen.push(...socket.events(body.id));
      const numbers = seen.map((event) => event.seq);
      expect(numbers).toEqual([...new Set(numbers)].sort((a, b) => a - b));
      const types = seen.map((event) => event.event_type);
      const count = (type: string): number => types.filter((one) => one === type).length;
      expect([count("agent.started"), count("turn.failed"), count("session.recovered")]).toEqual([1, 0, 0]);
      expect(seen.filter((event) => event.event_type === "turn.completed").map((event) => event.turn_id)).toEqual([
        turn,
        queued,
      ]);
      await life.call("DELETE", `/v1/sessions/${body.id}`);
    },
  );
}

verifies(
  "SERVER-OUTLIVED",
  "an answer that was accepted just before the server was killed reaches the agent once; one that was not can be given later",
  async () => {
    await using server = makeKillableServer({ runner: "auto" });
    let life = await server.start();
    const made = await Promise.all([0, 1].map(() => life.call("POST", "/v1/sessions", { body: {} })));
    const ids = made.map(({ body }) => String(body.id));
    const answers = await Promise.all(
      ids.map(async (id) => {
        const socket = await life.socket({ query: `?session=${id}&after=0` });
        await send(life, id, "!ask");
        const { payload } = await socket.next("event", (event) => event.event_type === "request.opened");
        const response = {
          subtype: "success",
          request_id: field(payload, "request_id"),
          response: { behavior: "allow" },
        };
        return { id: randomUUID(), event_type: "control_response", payload: { type: "control_response", response } };
      }),
    );
    const [first = "", second = ""] = ids;
    expect((await life.call("POST", `/v1/sessions/${first}/commands`, { body: answers[0] })).status).toBe(202);
    await server.kill();
    life = await server.start();
    expect((await life.call("GET", `/v1/sessions/${second}/requests`)).body.requests).toHaveLength(1);
    // Sent again by a client that does not know what became of it.
    expect((await life.call("POST", `/v1/sessions/${first}/commands`, { body: answers[0] })).body.duplicate).toBe(true);
    expect((await life.call("POST", `/v1/sessions/${second}/commands`, { body: answers[1] })).status).toBe(202);
    for (const id of ids) {
      const socket = await life.socket({ query: `?session=${id}&after=0` });
      await socket.next("event", (event) => event.event_type === "turn.completed");
      const asked = await life.call("POST", `/v1/sessions/${id}/turns`, { body: { text: "!answers", wait_s: 20 } });
      expect(asked.body.result.result).toBe("1");
      await life.call("DELETE", `/v1/sessions/${id}`);
    }
  },
);

verifies(
  "SESSION-RECOVER",
  "the runner is killed: its agents are gone, the turn fails, and the next message works on another runner",
  async () => {
    await using server = makeKillableServer({ runner: "auto" });
    const life = await server.start();
    const { body } = await life.call("POST", "/v1/sessions", { body: {} });
    const socket = await life.socket({ query: `?session=${body.id}&after=0` });
    const { body: child } = await life.call("POST", `/v1/sessions/${body.id}/turns`, {
      body: { text: "!setsid", wait_s: 20 },
    });
    await send(life, body.id, "!stall");
    const { payload } = await socket.next("event", (event) => event.event_type === "agent.started");
    await socket.next("event", (event) => event.event_type === "user" && event.turn_id !== child.turn_id);
    const runner = runnerPid(server.dataDir) ?? 0;
    process.kill(runner, "SIGKILL");
    const exited = await socket.next("event", (event) => event.event_type === "agent.exited");
    expect(field(exited.payload, "lost")).toBe(true);
    await socket.next("event", (event) => event.event_type === "turn.failed");
    const { body: turn } = await life.call("POST", `/v1/sessions/${body.id}/turns`, {
      body: { text: "again", wait_s: 20 },
    });
    expect(turn.outcome).toBe("completed");
    expect(runnerPid(server.dataDir)).not.toBe(runner);
    // Nothing of it is left, not even what it had put into a session of its own.
    for (const pid of [Number(field(payload, "pid")), Number(child.result.result)]) {
      const entry = readProcess(pid);
      expect(entry !== undefined && isAlive(entry)).toBe(false);
    }
    await life.call("DELETE", `/v1/sessions/${body.id}`);
  },
);
