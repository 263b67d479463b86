import { mkdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, describe } from "vitest";
import { type Broker, createBroker } from "../../src/broker.ts";
import { type Client, connect, type SessionInput } from "../../src/client/index.ts";
import { startScriptedModel } from "../../src/demo/model.ts";
import type { RecordedRequest } from "../../src/demo/recorder.ts";
import type { Rule } from "../../src/demo/rules.ts";
import { CLI_VERSIONS } from "../demo/cli.ts";
import { orphansOf } from "./model-messages.ts";
import { stopRunner } from "./runner-process.ts";
import { makeTempDir } from "./temp-dir.ts";
import { type Watched, watch } from "./watched-session.ts";

/** What the agents authenticate with; no test may find it where it does not belong. */
export const AGENT_KEY = "sk-ant-e2e-0123456789";
export const ADMIN_KEY = "pb_e2eadmin_0123456789abcdefghijklmnopqrstuvwxyz";

/** What the operator hands to every agent of a broker whose model is at `modelUrl`. */
const agentEnv = (modelUrl: string): Record<string, string> => ({
  ANTHROPIC_BASE_URL: modelUrl,
  ANTHROPIC_API_KEY: AGENT_KEY,
  CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC: "1",
});

/** A real broker with a real CLI that talks to a scripted model. */
export interface E2e extends AsyncDisposable {
  readonly version: string;
  /** Of the broker that runs now. */
  readonly url: string;
  readonly client: Client;
  /** The model's answered requests of a session, oldest first. */
  turnsOf(watched: Watched): readonly RecordedRequest[];
  /** The first such request, past or future. */
  modelRequest(watched: Watched, fits: (request: RecordedRequest) => boolean): Promise<RecordedRequest>;
  release(name: string): void;
  session(input?: SessionInput): Promise<Watched>;
  /** Another look at a session, from its beginning, through the broker that runs now. */
  attach(id: string): Promise<Watched>;
  /** Closes the broker with its agents, and starts another one on the same data directory. */
  restart(): Promise<void>;
}

/** How long the model waits for what a test waits for: starts are slow when five CLIs share two cores. */
const PATIENCE_MS = 60_000;

export interface CliBinary {
  readonly version: string;
  readonly path: string;
}

export async function startE2e({ version, path }: CliBinary, script: readonly Rule[]): Promise<E2e> {
  const folder = makeTempDir();
  const model = await startScriptedModel({ script });
  const workspaceRoot = join(folder.path, "workspaces");
  mkdirSync(workspaceRoot);
  const open = async (): Promise<{ broker: Broker; client: Client }> => {
    const broker = await createBroker({
      port: 0,
      dataDir: join(folder.path, "data"),
      workspaceRoot,
      claudeBin: path,
      adminKey: ADMIN_KEY,
      agentEnv: agentEnv(model.url),
      logLevel: "error",
    });
    return { broker, client: connect({ url: broker.url, token: ADMIN_KEY }) };
  };
  let running = await open();
  const shut = async (last: { stopAgents?: boolean } = {}): Promise<void> => {
    running.client.close();
    await running.broker.close(last);
  };
  const attach = async (id: string): Promise<Watched> => {
    const session = running.client.session(id);
    const { tenant, cwd } = await session.view();
    return watch(session, join(workspaceRoot, tenant, cwd));
  };
  const isOf = (watched: Watched) => (request: RecordedRequest) =>
    request.kind === "turn" && watched.cliSessionIds().includes(request.conversation.sessionId);
  return {
    version,
    get url() {
      return running.broker.url;
    },
    get client() {
      return running.client;
    },
    turnsOf: (watched) => model.turns().filter(isOf(watched)),
    modelRequest: (watched, fits) =>
      model.waitForRequest((request) => isOf(watched)(request) && fits(request), { timeoutMs: PATIENCE_MS }),
    release: model.release,
    session: async (input) => attach((await running.client.createSession(input)).id),
    attach,
    async restart() {
      await shut({ stopAgents: true });
      running = await open();
    },
    async [Symbol.asyncDispose]() {
      await shut({ stopAgents: true });
      await stopRunner(join(folder.path, "data"));
      await model.close();
      folder[Symbol.dispose]();
      // The real API refuses a conversation with half a tool call, so no scenario may leave one behind.
      const orphans = model.turns().flatMap((request) => orphansOf(request.body));
      if (orphans.length > 0) throw new Error(`the model got half tool calls: ${orphans.join("; ")}`);
    },
  };
}

/** The scenarios once for each version of the CLI, side by side, each in a session of its own on one broker. */
export function forEachVersion(
  script: readonly Rule[],
  scenarios: (e2e: () => E2e, version: (typeof CLI_VERSIONS)[number]["version"]) => void,
): void {
  for (const candidate of CLI_VERSIONS) {
    describe.concurrent(`claude ${candidate.version}`, () => {
      let e2e: E2e | undefined;
      beforeAll(async () => {
        e2e = await startE2e(candidate, script);
      });
      afterAll(async () => e2e?.[Symbol.asyncDispose](), 60_000);
      scenarios(() => {
        if (e2e === undefined) throw new Error("the broker has not started");
        return e2e;
      }, candidate.version);
    });
  }
}

/** A process's environment at its start, or its command line. */
export function procOf(pid: number, file: "environ" | "cmdline"): readonly string[] {
  return readFileSync(`/proc/${pid}/${file}`, "utf8")
    .split("\0")
    .filter((part) => part !== "");
}
