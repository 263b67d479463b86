import { existsSync } from "node:fs";
import { join } from "node:path";
import { Runloop } from "@runloop/api-client";
import { Runloop as OlderRunloop } from "runloop-api-client-1.21";
import { describe, expect } from "vitest";
import { type ScriptedModel, startScriptedModel } from "../../src/demo/model.ts";
import type { Rule } from "../../src/demo/rules.ts";
import { isJsonObject, type JsonObject } from "../../src/protocol/json.ts";
import { CLI_VERSIONS } from "../demo/cli.ts";
import { freePort } from "../kit/free-port.ts";
import { makeKillableServer } from "../kit/killable-server.ts";
import { type ConnectionOptions, createRunloopConnection, type RunloopConnection } from "../kit/runloop-connection.ts";
import { ADMIN_KEY } from "../kit/server.ts";
import { until } from "../kit/until.ts";
import { verifies } from "../kit/verifies.ts";

const ANSWER = "A long answer, word by word, over a stream that does not hold for as long as it takes.";

const script: readonly Rule[] = [
  { text: "hello", reply: "Hello from the agent." },
  { text: "touch", reply: { tool: "Bash", input: { command: "touch made.txt" } } },
  {
    text: "which",
    reply: {
      tool: "AskUserQuestion",
      input: {
        questions: [
          {
            question: "Which?",
            header: "Which",
            multiSelect: false,
            options: [
              { label: "A", description: "a" },
              { label: "B", description: "b" },
            ],
          },
        ],
      },
    },
  },
  {
    text: "stream",
    reply: [
      { text: ANSWER.slice(0, 40), chunkChars: 4 },
      { hold: "stream" },
      { text: ANSWER.slice(40), chunkChars: 4 },
    ],
  },
  { text: "dwell", reply: { tool: "Bash", input: { command: "echo up > up; until [ -e go ]; do sleep 0.1; done" } } },
  { text: "hang", reply: ["so far", { hold: "for ever" }] },
  { round: "any", reply: "done" },
];

interface Scene extends AsyncDisposable {
  /** Drains it, and starts the next one where it was. */
  restart(): Promise<void>;
  agentPid(): Promise<number>;
  readonly api: Runloop;
  readonly axonId: string;
  readonly devboxId: string;
  readonly folder: string;
  connection(options?: ConnectionOptions): Promise<RunloopConnection>;
  /** Sends, and gives all messages until the result. */
  turn(connection: RunloopConnection, text: string): Promise<JsonObject[]>;
}

async function openScene(claudeBin: string, modelUrl: string, Client: typeof Runloop = Runloop): Promise<Scene> {
  const stack = new AsyncDisposableStack();
  const server = stack.use(
    makeKillableServer({
      port: await freePort(),
      claudeBin,
      runner: "auto",
      agentEnv: { ANTHROPIC_BASE_URL: modelUrl },
    }),
  );
  let life = await server.start();
  const { url } = life;
  // All that a user changes: the two that the client reads from its environment.
  const api = new Client({ baseURL: url, bearerToken: ADMIN_KEY });
  const axon = await api.axons.create({ name: "chat" });
  const devbox = await api.devboxes.createAndAwaitRunning({
    name: "box",
    mounts: [{ type: "broker_mount", axon_id: axon.id, protocol: "claude_json", launch_args: [] }],
    environment_variables: { ANTHROPIC_API_KEY: "sk-ant-e2e-0123456789", PATH: "/opt/bin:/usr/bin" },
  });
  expect(devbox.status).toBe("running");
  return {
    async restart() {
      life.process.kill("SIGTERM");
      await life.exited;
      life = await server.start();
    },
    async agentPid() {
      const { body } = await life.call("GET", `/v1/sessions/${axon.id}`);
      return body.agent.pid;
    },
    api,
    axonId: axon.id,
    devboxId: devbox.id,
    folder: join(server.dataDir, "workspaces", "default", "sessions", axon.id),
    async connection(options = {}) {
      const connection = createRunloopConnection(api, axon.id, options);
      stack.defer(() => connection.disconnect());
      await connection.connect();
      return connection;
    },
    async turn(connection, text) {
      const messages: JsonObject[] = [];
      await connection.send(text);
      for await (const message of connection.receiveAgentResponse()) messages.push(message);
      return messages;
    },
    [Symbol.asyncDispose]: () => stack.disposeAsync(),
  };
}

const resultOf = (messages: readonly JsonObject[]): JsonObject => messages.at(-1) ?? {};
const textOf = (messages: readonly JsonObject[]): string =>
  JSON.stringify(messages.filter(({ type }) => type === "assistant"));

/** Spec runloop-contract 7, on an axon with a devbox that is up. */
async function wholeFlow(scene: Scene, model: ScriptedModel): Promise<void> {
  const permission = (request: JsonObject): JsonObject => {
    if (request["tool_name"] !== "AskUserQuestion") return { behavior: "allow", updatedInput: request["input"] };
    const input = isJsonObject(request["input"]) ? request["input"] : {};
    return { behavior: "allow", updatedInput: { ...input, answers: { "Which?": "B" } } };
  };
  const connection = await scene.connection({ handlers: { can_use_tool: permission } });
  const initialized = await connection.initialize();
  expect(Array.isArray(initialized["commands"])).toBe(true);

  const hello = await scene.turn(connection, "hello");
  expect(textOf(hello)).toContain("Hello from the agent.");
  expect(resultOf(hello)).toMatchObject({ type: "result", is_error: false });

  await scene.turn(connection, "touch");
  expect(existsSync(join(scene.folder, "made.txt"))).toBe(true);
  await scene.turn(connection, "which");
  // As the tool result that the model is given: the name of the tool has a B, too.
  expect(JSON.stringify(model.turns().at(-1)?.body)).toMatch(/Which\?\\*"=\\*"B\\*"/);
  expect(connection.asked).toHaveLength(2);

  await connection.setPermissionMode("plan");
  await connection.setPermissionMode("default");
  await connection.send("hang");
  await model.waitForRequest((request) => request.kind === "turn" && request.conversation.text.includes("hang"));
  await connection.interrupt();
  const interrupted: JsonObject[] = [];
  for await (const message of connection.receiveAgentResponse()) interrupted.push(message);
  expect(resultOf(interrupted)["subtype"]).toBe("error_during_execution");
  expect(textOf(await scene.turn(connection, "hello"))).toContain("Hello from the agent.");

  const shut = await scene.api.devboxes.shutdown(scene.devboxId);
  expect(shut.status).toBe("shutdown");
  expect((await scene.api.axons.retrieve(scene.axonId)).name).toBe("chat");
}

describe.concurrent.each(CLI_VERSIONS)("claude $version", ({ path }) => {
  verifies(
    "RUNLOOP-FLOW",
    "the official client, unmodified: axon, devbox, connect, initialize, send, permission, question, mode, interrupt, next turn, shutdown",
    async () => {
      await using model = await startScriptedModel({ script });
      await using scene = await openScene(path, model.url);
      await wholeFlow(scene, model);
    },
  );

  verifies(
    "RUNLOOP-CONNECTION",
    "one connection object lives through a reload in mid-prompt, a restart of the server in mid-turn, and a SIGKILL of the agent in mid-turn",
    async () => {
      await using model = await startScriptedModel({ script });
      await using scene = await openScene(path, model.url);
      // A page that goes away while it is asked: the next one is asked, once.
      const never = new Promise<JsonObject>(() => {});
      const first = await scene.connection({ handlers: { can_use_tool: () => never } });
      await first.send("touch");
      await until(() => first.asked.length === 1);
      first.disconnect();
      const connection = await scene.connection({
        handlers: { can_use_tool: ({ input }) => ({ behavior: "allow", updatedInput: input }) },
      });
      const touched: JsonObject[] = [];
      for await (const message of connection.receiveAgentResponse()) touched.push(message);
      expect(resultOf(touched)).toMatchObject({ type: "result", is_error: false });
      expect(existsSync(join(scene.folder, "made.txt"))).toBe(true);
      // Seen again by a third one, it is not asked any more.
      const third = await scene.connection();
      await scene.turn(third, "hello");
      expect(third.asked).toEqual([]);
      third.disconnect();

      for await (const message of connection.receiveAgentResponse()) if (message["type"] === "result") break;
      await connection.send("stream");
      await model.waitForRequest((request) => request.kind === "turn" && request.conversation.text.includes("stream"));
      const pid = await scene.agentPid();
      await scene.restart();
      expect(await scene.agentPid()).toBe(pid);
      model.release("stream");
      const streamed: JsonObject[] = [];
      for await (const message of connection.receiveAgentResponse()) streamed.push(message);
      expect(textOf(streamed)).toContain(ANSWER);
      expect(connection.isDead()).toBe(false);

      // In the middle of a tool: the message is in the conversation for certain, so its turn fails rather than to run again.
      await connection.send("dwell");
      await until(() => existsSync(join(scene.folder, "up")));
      process.kill(await scene.agentPid(), "SIGKILL");
      const cut: JsonObject[] = [];
      for await (const message of connection.receiveAgentResponse()) cut.push(message);
      expect(resultOf(cut)).toMatchObject({ type: "result", is_error: true });
      expect(textOf(await scene.turn(connection, "hello"))).toContain("Hello from the agent.");
    },
  );
});

verifies(
  "RUNLOOP-FLOW",
  "an older official client, unmodified, which speaks HTTP/1.1: the same flow as a whole",
  async () => {
    const [{ path }] = CLI_VERSIONS;
    await using model = await startScriptedModel({ script });
    // biome-ignore lint/suspicious/noExplicitAny: two versions of one class, of which the test uses what both have
    await using scene = await openScene(path, model.url, OlderRunloop as any);
    await wholeFlow(scene, model);
  },
);
