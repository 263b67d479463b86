import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect } from "vitest";
import { type Client, connect, type SessionEvent } from "../../src/client/index.ts";
import { startScriptedModel } from "../../src/demo/model.ts";
import type { Rule } from "../../src/demo/rules.ts";
import { CLI_VERSIONS } from "../demo/cli.ts";
import { freePort } from "../kit/free-port.ts";
import { type KillableServer, makeKillableServer } from "../kit/killable-server.ts";
import { ADMIN_KEY } from "../kit/server.ts";
import { verifies } from "../kit/verifies.ts";
import { type Watched, watch } from "../kit/watched-session.ts";

const ANSWER = "Here is the first part of a long answer, and here is the rest of it, word by word to the very end.";

const script: readonly Rule[] = [
  {
    text: "stream",
    reply: [
      { text: ANSWER.slice(0, 40), chunkChars: 4 },
      { hold: "stream" },
      { text: ANSWER.slice(40), chunkChars: 4 },
    ],
  },
  {
    text: "wait",
    reply: { tool: "Bash", input: { command: "echo up > up; until [ -e go ]; do sleep 0.1; done; echo went > went" } },
  },
  { text: "ask", reply: { tool: "Bash", input: { command: "touch made.txt" } } },
  { text: { regex: "^say (\\w+)" }, reply: "$1" },
  { round: "any", reply: "done" },
];

/** What a reader saw has no seam: numbers ascend, none comes twice. */
function expectSeamless(events: readonly SessionEvent[]): void {
  const numbers = events.map((event) => event.seq);
  expect(numbers).toEqual([...new Set(numbers)].sort((a, b) => a - b));
  expect(
    events.filter((event) => event.event_type === "session.recovered" || event.event_type === "turn.failed"),
  ).toEqual([]);
  expect(events.filter((event) => event.event_type === "agent.started")).toHaveLength(1);
}

async function endedOnce(watched: Watched, turnId: string): Promise<void> {
  const end = await watched.end(turnId);
  expect(end).toMatchObject({ event_type: "turn.completed", payload: { stop_reason: "end_turn" } });
}

interface Scene extends AsyncDisposable {
  readonly server: KillableServer;
  readonly client: Client;
  session(): Promise<Watched>;
}

async function openScene(claudeBin: string, modelUrl: string): Promise<Scene> {
  const server = makeKillableServer({
    port: await freePort(),
    claudeBin,
    runner: "auto",
    agentEnv: {
      ANTHROPIC_BASE_URL: modelUrl,
      ANTHROPIC_API_KEY: "sk-ant-e2e-0123456789",
      CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC: "1",
    },
  });
  const { url } = await server.start();
  const client = connect({ url, token: ADMIN_KEY });
  const sessions: Watched[] = [];
  return {
    server,
    client,
    async session() {
      const made = await client.createSession({});
      const { id, cwd } = await made.view();
      const watched = watch(client.session(id), join(server.dataDir, "workspaces", "default", cwd));
      sessions.push(watched);
      return watched;
    },
    async [Symbol.asyncDispose]() {
      await Promise.all(sessions.map(({ session }) => session.end()));
      client.close();
      await server[Symbol.asyncDispose]();
    },
  };
}

describe.concurrent.each(CLI_VERSIONS)("claude $version", ({ path }) => {
  verifies(
    "SERVER-OUTLIVED",
    "known bug 8d: the server is killed -9 while a tool runs, text streams, a permission is open and a message is queued; the same turns end, asked once",
    async () => {
      await using model = await startScriptedModel({ script });
      await using scene = await openScene(path, model.url);
      const [tool, stream, asked] = await Promise.all([scene.session(), scene.session(), scene.session()]);
      tool.allowAll();
      const running = tool.send("wait");
      const streaming = stream.send("stream");
      const asking = asked.send("ask");
      await tool.file("up");
      await stream.first("preview", () => stream.previewText(streaming.turnId).length >= 40);
      await asked.first("request", (event) => event.event_type === "request.opened");
      const queued = tool.send("say queued");
      await queued.accepted;

      await scene.server.kill();
      // The agents go on without a server.
      writeFileSync(join(tool.folder, "go"), "");
      await tool.file("went");
      await scene.server.start();

      const request = await asked.request();
      await request.allow();
      // The client has come back by itself, as that was acknowledged.
      model.release("stream");
      for (const [watched, sent] of [
        [tool, running],
        [tool, queued],
        [stream, streaming],
        [asked, asking],
      ] as const) {
        await endedOnce(watched, sent.turnId);
      }
      expect(stream.previewText(streaming.turnId)).toBe(ANSWER);
      for (const watched of [tool, stream, asked]) expectSeamless(watched.events);
      expect(asked.all("request.opened")).toHaveLength(1);
      expect(asked.all("request.resolved").map(({ payload }) => payload.outcome)).toEqual(["answered"]);
      // One request for each round, none twice: wait + its result + queued, stream, ask + its result.
      expect(model.turns()).toHaveLength(6);
    },
  );
});
