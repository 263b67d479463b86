import { randomUUID } from "node:crypto";
import { chmodSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect } from "vitest";
import { fakeAgentBinary } from "../kit/fake-agent-spec.ts";
import { makeKillableServer } from "../kit/killable-server.ts";
import { payloadField } from "../kit/payload-field.ts";
import { startServer, type TestServer } from "../kit/server.ts";
import { openSse } from "../kit/sse-client.ts";
import { makeTempDir } from "../kit/temp-dir.ts";
import { verifies } from "../kit/verifies.ts";
import { connect } from "../kit/ws-client.ts";

/** Ends a turn of this text. */
async function say(server: TestServer, id: string, text: string) {
  return (await server.call("POST", `/v1/sessions/${id}/turns`, { body: { text, wait_s: 20 } })).body;
}

verifies(
  "AGENT-ENV",
  "known bug 3: nothing of the server's environment reaches the agent, and no secret its command line",
  async () => {
    const secrets = {
      BROKER_DB_PASSWORD: "s3cret-db",
      FOO_TOKEN: "s3cret-foo",
      CLAUDECODE: "1",
      CLAUDE_CODE_ENTRYPOINT: "s3cret-parent",
      ANTHROPIC_API_KEY: "s3cret-key",
    };
    const before = { ...process.env };
    Object.assign(process.env, secrets);
    try {
      await using server = await startServer();
      const { id } = await server.session();
      const { result } = await say(server, id, "!dump");
      const { env, argv } = JSON.parse(result.result);
      expect(Object.keys(secrets).filter((name) => Object.hasOwn(env, name))).toEqual([]);
      expect(`${JSON.stringify(env)} ${argv.join(" ")}`).not.toContain("s3cret");
      expect(argv.join(" ")).not.toContain(server.adminKey);
    } finally {
      process.env = before;
    }
  },
);

verifies(
  "AGENT-ENV",
  "known bug 2: each session has its own credential; those of whoever started server or runner reach nobody, also not by a runner that lived before",
  async () => {
    const before = { ...process.env };
    try {
      await using server = makeKillableServer({ runner: "auto" });
      const seen: unknown[] = [];
      for (const life of ["one", "two"]) {
        // The first server starts the runner, and the second one joins it.
        Object.assign(process.env, { ANTHROPIC_API_KEY: `starter-${life}`, ANTHROPIC_AUTH_TOKEN: `starter-${life}` });
        const { call } = await server.start();
        const dumps = [`own-${life}`, undefined, `other-${life}`].map(async (key) => {
          const env = key === undefined ? {} : { ANTHROPIC_API_KEY: key };
          const { id } = (await call("POST", "/v1/sessions", { body: { agent: { env } } })).body;
          const turn = await call("POST", `/v1/sessions/${id}/turns`, { body: { text: "!dump", wait_s: 20 } });
          expect(turn.body.outcome).toBe("completed");
          expect(turn.text).not.toContain("starter-");
          const dumped = JSON.parse(turn.body.result.result).env;
          return [dumped["ANTHROPIC_API_KEY"], dumped["ANTHROPIC_AUTH_TOKEN"]];
        });
        seen.push(...(await Promise.all(dumps)));
        await server.kill();
      }
      const wanted = ["own-one", undefined, "other-one", "own-two", undefined, "other-two"];
      expect(seen).toEqual(wanted.map((key) => [key, undefined]));
    } finally {
      process.env = before;
    }
  },
);

verifies(
  "AGENT-SPAWN-FAILS",
  "known bug 13: agents that fail at once, soon, or go deaf fail their own session, with a message of 1 MB on its way",
  async () => {
    using folder = makeTempDir();
    const program = join(folder.path, "claude");
    const cases = [
      "false) exec /bin/false;;",
      "soon) echo no luck >&2; sleep 0.05; exit 3;;",
      "deaf) exec 0<&-; exec sleep 60;;",
    ];
    const script = [
      "#!/bin/sh",
      'case $(basename "$PWD") in',
      ...cases,
      "esac",
      `exec '${fakeAgentBinary(folder.path)}' "$@"`,
      "",
    ];
    writeFileSync(program, script.join("\n"));
    chmodSync(program, 0o755);
    await using server = await startServer({
      options: { claudeBin: program },
      tuning: { sessions: { startTimeoutMs: 1_000 } },
    });
    const bystander = await server.session();
    await say(server, bystander.id, "here");
    const outcomes = ["false", "soon", "deaf"].map(async (cwd) => {
      const { id } = await server.session({ cwd });
      const end = await say(server, id, "m".repeat(1024 * 1024));
      const { state, reason } = (await server.call("GET", `/v1/sessions/${id}`)).body;
      return {
        cwd,
        outcome: end.outcome,
        why: end.reason,
        state,
        tells: /no luck|code 1|SIG|initialize|time/i.test(reason),
      };
    });
    const failed = { outcome: "failed", why: "agent_start_failed", state: "failed", tells: true };
    expect(await Promise.all(outcomes)).toEqual(["false", "soon", "deaf"].map((cwd) => ({ cwd, ...failed })));
    expect(await say(server, bystander.id, "still here")).toMatchObject({ outcome: "completed" });
  },
);

verifies(
  "AGENT-SPAWN-FAILS",
  "known bug 13: a missing executable fails the session by name, and the server goes on",
  async () => {
    await using server = await startServer({ options: { claudeBin: "/nonexistent/claude" } });
    const { id } = await server.session();
    expect(await say(server, id, "hello")).toMatchObject({ outcome: "failed", reason: "agent_start_failed" });
    expect((await server.call("GET", `/v1/sessions/${id}`)).body.state).toBe("failed");
    expect((await server.call("GET", "/healthz")).status).toBe(200);
  },
);

verifies(
  "P3-ONCE",
  "known bug 16: the first message arrives once, sent with the creation, with the upgrade, or read from 0",
  async () => {
    await using server = await startServer({ behaviour: { startDelayMs: 100 } });
    const headers = { authorization: `Bearer ${server.adminKey}` };
    const withCreation = await server.session({ prompt: "first" });
    const plain = await server.session();
    // In the tick of the upgrade, before welcome, and twice under one id.
    using eager = await connect(server.url, { headers, query: `?session=${plain.id}&after=0` });
    const command = {
      type: "command",
      id: "first",
      session_id: plain.id,
      event_type: "query",
      payload: { text: "first" },
    };
    eager.send(command);
    eager.send(command);
    for (const { id } of [withCreation, plain]) {
      using reader = await server.socket({ query: `?session=${id}&after=0` });
      await reader.next("event", (event) => event.event_type === "turn.completed");
      const events = reader.events(id);
      expect(events[0]?.seq).toBe(1);
      expect(events.filter((event) => event.event_type === "query")).toHaveLength(1);
      expect(events.filter((event) => event.echo_of !== undefined)).toHaveLength(1);
      expect(
        payloadField(
          events.find((event) => event.event_type === "result"),
          "result",
        ),
      ).toBe("echo: first");
    }
  },
);

verifies("TICKETS", "known bug 28c: no key, token or ticket is in the server's log, however it came", async () => {
  await using server = makeKillableServer({ logLevel: "trace" });
  const life = await server.start();
  const { id } = (await life.call("POST", "/v1/sessions", { body: { prompt: "hi" } })).body;
  const made = (await life.call("POST", "/v1/keys", { body: { roles: ["viewer"] } })).body.key;
  const ticket = async (): Promise<string> => (await life.call("POST", "/v1/tickets", { body: {} })).body.ticket;
  const tickets = [await ticket(), await ticket(), await ticket()];
  const wrong = `pb_wrong_${randomUUID()}`;
  using byTicket = await connect(life.url, { query: `?ticket=${tickets[0]}&session=${id}` });
  await byTicket.next("subscribed");
  using byFrame = await connect(life.url);
  byFrame.send({ type: "auth", token: made });
  await byFrame.next("welcome");
  using refused = await connect(life.url);
  refused.send({ type: "auth", token: wrong });
  await refused.closed;
  using stream = await openSse(`${life.url}/v1/sessions/${id}/events/stream?ticket=${tickets[1]}`);
  expect(stream.status).toBe(200);
  await life.call("GET", `/?ticket=${tickets[2]}`, { key: null });
  await life.call("GET", `/v1/sessions?ticket=${wrong}`, { key: null });
  await life.call("GET", `/v1/nothing?token=${wrong}`, { key: wrong });
  life.process.kill("SIGTERM");
  await life.exited;
  const log = life.output.join("\n");
  expect(life.output.length).toBeGreaterThan(5);
  for (const secret of ["pb_testadmin_0123456789abcdefghijklmnopqrstuvwxyz", made, wrong, ...tickets]) {
    expect(log.includes(secret.slice(-20)), secret.slice(0, 12)).toBe(false);
  }
});
