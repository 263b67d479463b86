import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import type { BrokerOptions } from "../../src/options.ts";
import { type FakeBehaviour, fakeAgentBinary } from "./fake-agent-spec.ts";
import { stopRunner } from "./runner-process.ts";
import { ADMIN_KEY, type Answer, type CallOptions, callServer } from "./server.ts";
import { makeTempDir } from "./temp-dir.ts";
import { type ConnectOptions, connect, type WsClient } from "./ws-client.ts";

const PROGRAM = fileURLToPath(import.meta.resolve("./broker-process.ts"));

export interface Exit {
  readonly code: number | null;
  readonly signal: NodeJS.Signals | null;
}

/** One life of a server process. */
export interface ServerProcess {
  readonly url: string;
  readonly process: ChildProcess;
  readonly exited: Promise<Exit>;
  /** The lines of its stdout and stderr so far. */
  readonly output: readonly string[];
  call(method: string, path: string, options?: CallOptions): Promise<Answer>;
  socket(options?: ConnectOptions): Promise<WsClient>;
}

/** A data directory, and the server processes that hold it one after the other. */
export interface KillableServer extends AsyncDisposable {
  readonly dataDir: string;
  /** Starts the next life. */
  start(): Promise<ServerProcess>;
  /** SIGKILL, and gone. */
  kill(): Promise<Exit>;
}

export function makeKillableServer(
  options: Partial<BrokerOptions> = {},
  behaviour: FakeBehaviour = {},
): KillableServer {
  const folder = makeTempDir();
  const dataDir = options.dataDir ?? join(folder.path, "data");
  const agents = join(folder.path, "agents");
  mkdirSync(agents);
  const given = {
    host: "127.0.0.1",
    port: 0,
    dataDir,
    claudeBin: fakeAgentBinary(agents, behaviour),
    adminKey: ADMIN_KEY,
    logLevel: "silent",
    runner: "inline",
    ...options,
  };
  let running: ServerProcess | undefined;
  let isRunning = false;

  async function start(): Promise<ServerProcess> {
    const child = spawn(process.execPath, [PROGRAM, JSON.stringify(given)], { stdio: ["pipe", "pipe", "pipe"] });
    isRunning = true;
    const exited = once(child, "exit").then(([code, signal]): Exit => {
      isRunning = false;
      return { code, signal };
    });
    const output: string[] = [];
    // Its log goes to stderr, and what it is to stdout.
    createInterface({ input: child.stderr }).on("line", (line) => output.push(line));
    const ready = new Promise<{ url?: string; error?: { message: string } }>((resolve) => {
      createInterface({ input: child.stdout }).on("line", (line) => {
        output.push(line);
        resolve(JSON.parse(line));
      });
    });
    const gone = exited.then(({ code }) => ({
      url: undefined,
      error: { message: `exit code ${code}: ${output.join("\n")}` },
    }));
    const { url, error } = await Promise.race([ready, gone]);
    if (url === undefined) throw new Error(`the server did not start: ${error?.message}`);
    const headers = { authorization: `Bearer ${ADMIN_KEY}` };
    running = {
      url,
      process: child,
      exited,
      output,
      call: (method, path, one) => callServer(url, method, path, one),
      async socket(more = {}) {
        const socket = await connect(url, { ...more, headers });
        await socket.next("welcome");
        return socket;
      },
    };
    return running;
  }

  async function kill(): Promise<Exit> {
    running?.process.kill("SIGKILL");
    return (await running?.exited) ?? { code: null, signal: null };
  }

  return {
    dataDir,
    start,
    kill,
    async [Symbol.asyncDispose]() {
      // What a killed one left behind is swept by a last life that ends in order.
      const last = isRunning ? running : await start();
      last?.process.kill("SIGTERM");
      await last?.exited;
      await stopRunner(dataDir);
      folder[Symbol.dispose]();
    },
  };
}
