import { join } from "node:path";
import { expect, test } from "vitest";
import { dial } from "../../src/agents/runner/dial.ts";
import { createMessageJoiner, sendMessage } from "../../src/agents/runner/messages.ts";
import type { Envelope } from "../../src/protocol/events.ts";
import { isJsonObject, type JsonObject } from "../../src/protocol/json.ts";
import { startDevbox } from "../kit/dialled-runner.ts";
import { startFaultProxy } from "../kit/fault-proxy.ts";
import { payloadField as field } from "../kit/payload-field.ts";
import { startServer, type TestServer } from "../kit/server.ts";
import { makeTempDir } from "../kit/temp-dir.ts";
import { verifies } from "../kit/verifies.ts";

const of = (type: string) => (event: Envelope) => event.event_type === type;
const ended = (turn: string) => (event: Envelope) =>
  event.turn_id === turn && (event.event_type === "turn.completed" || event.event_type === "turn.failed");

async function send(server: TestServer, id: string, text: string): Promise<string> {
  const { status, body } = await server.call("POST", `/v1/sessions/${id}/turns`, { body: { text } });
  expect(status).toBe(202);
  return body.turn_id;
}

/** A runner that has no agents and says what it is told to. */
function startLiar(url: string, token: string, runs: readonly string[], answer: (json: JsonObject) => JsonObject) {
  const cut = new AbortController();
  const query = "name=liar&instance=0123456789abcdef&process=0123456789abcdef&label=kind%3Dliar";
  const linked = Promise.withResolvers<void>();
  const joiner = createMessageJoiner();
  const calls: JsonObject[] = [];
  const end = dial(
    { url: `${url.replace("http", "ws")}/v1/runner?${query}`, token },
    (link) =>
      link.open({
        frame(frame) {
          if (frame.kind === "hello") {
            link.send({
              kind: "welcome",
              channel: 0,
              body: Buffer.from(JSON.stringify({ version: 1, about: {}, runs })),
            });
            linked.resolve();
          }
          const message = frame.kind === "call" ? joiner.push(frame) : undefined;
          if (message === undefined) return;
          calls.push(message.json);
          void sendMessage(link, "answer", frame.channel, answer(message.json));
        },
        drained() {},
        closed() {},
      }),
    cut.signal,
  );
  return {
    calls,
    linked: linked.promise,
    async [Symbol.asyncDispose]() {
      cut.abort();
      await end;
    },
  };
}

test("a runner that promises output and never sends it keeps neither the server's start, nor the sessions of other runners, nor the server's end waiting", async () => {
  using folder = makeTempDir();
  const options = { dataDir: join(folder.path, "data") };
  let server = await startServer({ options });
  const { key } = await server.key(["runner"], "other");
  const mine = await server.key(["runner"]);
  const admin = await server.key(["driver"], "other");
  const made = await server.call("POST", "/v1/sessions", {
    key: admin.key,
    body: { runner: { labels: { kind: "liar" }, when_away: "wait" }, prompt: "hello" },
  });
  expect(made.status).toBe(201);
  const describes = { known: true, pid: 1, process: { pid: 1, startTime: "1" }, written: 0, lineLimitBytes: 1000 };
  let run = "";
  {
    await using liar = startLiar(server.url, key, [], () => ({ ...describes, last: 0 }));
    await expect.poll(() => liar.calls.find((call) => call["method"] === "start"), { timeout: 5000 }).toBeDefined();
    const request = liar.calls.find((call) => call["method"] === "start")?.["request"];
    run = isJsonObject(request) ? String(request["run"]) : "";
    const view = async () => (await server.call("GET", `/v1/sessions/${made.body.id}`)).body.runner.name;
    expect(await view()).toBe("liar");
    await server[Symbol.asyncDispose]();
  }
  const startingAtMs = performance.now();
  server = await startServer({ options });
  expect(performance.now() - startingAtMs).toBeLessThan(5000);
  await using liar = startLiar(server.url, key, [run], () => ({ ...describes, last: 1_000_000, from: 0 }));
  await liar.linked;
  await expect.poll(() => liar.calls.some((call) => call["after"] !== undefined)).toBe(true);
  await using box = startDevbox({ broker: server.url, key: mine.key });
  await box.said("linked");
  const session = await server.session({ runner: { labels: {}, when_away: "wait" } });
  const socket = await server.socket({ query: `?session=${session.id}&after=0` });
  expect((await socket.next("event", ended(await send(server, session.id, "hello")))).event_type).toBe(
    "turn.completed",
  );
  // Away in mid-reading: its session opens without the rest.
  await liar[Symbol.asyncDispose]();
  const opened = await server.call("GET", `/v1/sessions/${made.body.id}`, { key: admin.key });
  expect([opened.status, opened.body.state]).toEqual([200, "starting"]);
  await using again = startLiar(server.url, key, [run], () => ({ ...describes, last: 1_000_000, from: 0 }));
  await again.linked;
  const closingAtMs = performance.now();
  await server[Symbol.asyncDispose]();
  expect(performance.now() - closingAtMs).toBeLessThan(5000);
});

verifies(
  "RUNNER-AWAY",
  "wait: a link that breaks while the CLI starts, for longer than it may take for that, costs nothing",
  async () => {
    await using server = await startServer({ tuning: { sessions: { startTimeoutMs: 1500 } } });
    await using proxy = await startFaultProxy(server.broker.port);
    const { key } = await server.key(["runner"]);
    await using box = startDevbox({ broker: proxy.url, key, behaviour: { startDelayMs: 700 } });
    await box.said("linked");
    const session = await server.session({ runner: { labels: {}, when_away: "wait" } });
    const socket = await server.socket({ query: `?session=${session.id}&after=0` });
    const turn = await send(server, session.id, "hello");
    await socket.next("event", of("agent.started"));
    const startedAtMs = performance.now();
    proxy.refuse(true);
    proxy.cut();
    await socket.next("event", of("agent.away"));
    await expect.poll(() => performance.now() - startedAtMs, { timeout: 5000 }).toBeGreaterThan(1700);
    proxy.refuse(false);
    const end = await socket.next("event", ended(turn));
    expect([end.event_type, field(end, "reason")]).toEqual(["turn.completed", undefined]);
  },
);

verifies(
  "RUNNER-AWAY",
  "a session that waits for a runner is ended without one, and the server ends while another waits",
  async () => {
    await using server = await startServer();
    const wish = { runner: { labels: { never: "there" }, when_away: "wait" as const } };
    const session = await server.session(wish);
    const socket = await server.socket({ query: `?session=${session.id}&after=0` });
    const turn = await send(server, session.id, "hello");
    await socket.next("event", (event) => field(event, "reason") !== undefined);
    expect((await server.call("DELETE", `/v1/sessions/${session.id}`)).status).toBeLessThan(300);
    const end = await socket.next("event", ended(turn));
    expect([end.event_type, field(end, "reason")]).toEqual(["turn.failed", "session_ended"]);
    const other = await server.session(wish);
    await send(server, other.id, "hello");
  },
);
