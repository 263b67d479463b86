import { existsSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect } from "vitest";
import { createBroker } from "../../src/broker.ts";
import { connect } from "../../src/client/index.ts";
import { startScriptedModel } from "../../src/demo/model.ts";
import type { Rule } from "../../src/demo/rules.ts";
import { isJsonObject } from "../../src/protocol/json.ts";
import { CLI_VERSIONS } from "../demo/cli.ts";
import { startDevbox } from "../kit/dialled-runner.ts";
import { startFaultProxy } from "../kit/fault-proxy.ts";
import { orphansOf } from "../kit/model-messages.ts";
import { ADMIN_KEY } from "../kit/server.ts";
import { makeTempDir } from "../kit/temp-dir.ts";
import { until } from "../kit/until.ts";
import { verifies } from "../kit/verifies.ts";
import { watch } from "../kit/watched-session.ts";

/** Every connection of the devbox is cut after so long; a real proxy may give it 5 s. */
const CUT_EVERY_MS = 700;
const ANSWER = "A long answer, word by word, over a link that does not hold for as long as it takes to say it.";

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
  { text: "moved", reply: "I remember." },
  { round: "any", reply: "done" },
];

async function openScene(claudeBin: string) {
  const stack = new AsyncDisposableStack();
  const folder = stack.use(makeTempDir());
  const model = await startScriptedModel({ script });
  stack.defer(() => model.close());
  const broker = await createBroker(
    { port: 0, dataDir: join(folder.path, "data"), adminKey: ADMIN_KEY, logLevel: "silent", runner: "none", claudeBin },
    { runners: { failAfterMs: 4000 } },
  );
  stack.defer(async () => void (await broker.close()));
  const client = connect({ url: broker.url, token: ADMIN_KEY });
  stack.defer(() => client.close());
  const made = await client.http("POST", "/v1/keys", { body: { roles: ["runner"] } });
  const key = isJsonObject(made) ? String(made["key"]) : "";
  const devbox = (url: string, name: string) =>
    stack.use(
      startDevbox({
        broker: url,
        key,
        name,
        claudeBin,
        env: {
          PATCHBAY_AGENT_ENV_ANTHROPIC_BASE_URL: model.url,
          PATCHBAY_AGENT_ENV_ANTHROPIC_API_KEY: "sk-ant-e2e-0123456789",
          PATCHBAY_AGENT_ENV_CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC: "1",
        },
      }),
    );
  return { stack, model, broker, client, devbox, [Symbol.asyncDispose]: () => stack.disposeAsync() };
}

for (const { version, path } of CLI_VERSIONS) {
  describe.concurrent(`claude ${version}`, () => {
    verifies(
      "DIAL-IN",
      "a whole session over a link that is cut all the time: nothing lost, nothing twice; then another devbox goes on with it from the stored transcript",
      async () => {
        await using scene = await openScene(path);
        const { model, client, stack } = scene;
        const proxy = stack.use(await startFaultProxy(scene.broker.port));
        const box = scene.devbox(proxy.url, "first");
        const cutting = setInterval(() => proxy.cut(), CUT_EVERY_MS);
        stack.defer(() => clearInterval(cutting));
        const { id } = await client.createSession({ runner: { labels: {}, when_away: "fail" } });
        const session = client.session(id);
        const { tenant, cwd } = await session.view();
        const folder = join(box.dataDir, "workspaces", tenant, cwd);
        const watched = stack.use(watch(session, folder));

        const streamed = watched.send("stream");
        await until(() => proxy.connections() > 4);
        model.release("stream");
        expect(await watched.end(streamed.turnId)).toMatchObject({ event_type: "turn.completed" });

        const waited = watched.send("wait");
        await (await watched.request()).allow();
        await watched.file("up");
        const before = proxy.connections();
        await until(() => proxy.connections() > before + 1);
        writeFileSync(join(folder, "go"), "");
        expect(await watched.end(waited.turnId)).toMatchObject({ event_type: "turn.completed" });

        const asked = watched.send("ask");
        await (await watched.request()).allow();
        expect(await watched.end(asked.turnId)).toMatchObject({ event_type: "turn.completed" });
        expect(existsSync(join(folder, "made.txt"))).toBe(true);
        const numbers = watched.events.map((event) => event.seq);
        expect(numbers).toEqual([...new Set(numbers)].sort((a, b) => a - b));
        expect(watched.events.filter((event) => event.event_type === "agent.started")).toHaveLength(1);

        clearInterval(cutting);
        box.process.kill("SIGKILL");
        await box.exited();
        scene.devbox(scene.broker.url, "second");
        const moved = watched.send("moved");
        expect(await watched.end(moved.turnId)).toMatchObject({ event_type: "turn.completed" });
        expect((await session.view()).runner?.name).toBe("second");
        const told = model.turns().at(-1)?.body;
        expect(orphansOf(told)).toEqual([]);
        expect(JSON.stringify(told)).toContain(ANSWER.slice(41));
      },
    );
  });
}
