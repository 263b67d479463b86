import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { appendFileSync, mkdirSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { type Devbox, startDevbox } from "../kit/dialled-runner.ts";
import { fakeAgentBinary } from "../kit/fake-agent-spec.ts";
import { startFaultProxy } from "../kit/fault-proxy.ts";
import { runnerPid, stopRunner } from "../kit/runner-process.ts";
import { ADMIN_KEY, callServer } from "../kit/server.ts";
import { makeTempDir } from "../kit/temp-dir.ts";
import { type Bell, createBell } from "./bell.ts";
import { type Disk, makeDisk } from "./disk.ts";

/** Who owns the agents: a program of its own, the server, or a runner that dials in. */
export type RunnerMode = "auto" | "inline" | "dialled";

export interface WorldOptions {
  /** The CLI of all agents instead of the fake agent, by its path; it gets these variables. */
  readonly claudeBin?: string;
  readonly agentEnv?: Readonly<Record<string, string>>;
}

/** A data directory with one server after the other, the ways to it, and everything of it that can be killed. */
export interface World {
  readonly folder: string;
  readonly dataDir: string;
  readonly journals: string;
  readonly mode: RunnerMode;
  readonly disk: Disk;
  /** Rings at every event, answer and new server: what everybody waits for. */
  readonly bell: Bell;
  /** Owners of agents that were killed, by pid. */
  readonly killedRunners: Set<number>;
  /** The address of the server itself. */
  url(): string;
  serverPid(): number;
  runnerPid(): number | undefined;
  /** SIGKILL of the owner of the agents; the next one comes. Nothing where that is the server. */
  killRunner(): Promise<void>;
  /** Cuts the link of a runner that dials in. False where there is none. */
  cutRunner(): boolean;
  /** Agents that live, by pid. */
  agents(): number[];
  isUp(): boolean;
  whenUp(): Promise<void>;
  start(): Promise<void>;
  /** The last lines that servers said on stderr. */
  said(): string;
  /** Sends the signal and waits for the end. Gives the exit code. */
  end(signal: "SIGKILL" | "SIGTERM"): Promise<number | null>;
  /** Ends the owner of the agents in order, when no server is left. */
  stopRunner(): Promise<void>;
  /** The way closed, disk and folder gone. */
  remove(): Promise<void>;
}

const CLI = fileURLToPath(import.meta.resolve("../../src/cli.ts"));

export async function makeWorld(mode: RunnerMode, { claudeBin, agentEnv = {} }: WorldOptions = {}): Promise<World> {
  const temp = makeTempDir();
  const disk = makeDisk(temp.path);
  const dataDir = join(disk.path, "data");
  const journals = join(temp.path, "journals");
  const bell = createBell();
  const killedRunners = new Set<number>();
  mkdirSync(journals);
  const binary = claudeBin ?? fakeAgentBinary(temp.path, { journal: journals });
  const variables = Object.fromEntries(
    Object.entries(agentEnv).map(([name, value]) => [`PATCHBAY_AGENT_ENV_${name}`, value]),
  );
  const env = {
    PATH: process.env["PATH"] ?? "",
    NODE_COMPILE_CACHE: join(temp.path, "compiled"),
    PATCHBAY_HOST: "127.0.0.1",
    PATCHBAY_PORT: "0",
    PATCHBAY_DATA_DIR: dataDir,
    PATCHBAY_CLAUDE_BIN: binary,
    PATCHBAY_ADMIN_KEY: ADMIN_KEY,
    PATCHBAY_LOG_LEVEL: "warn",
    PATCHBAY_RUNNER: mode === "dialled" ? "none" : mode,
    ...variables,
  };
  let server:
    | { readonly url: string; readonly process: ChildProcess; readonly exit: Promise<number | null> }
    | undefined;
  const current = () => {
    if (server === undefined) throw new Error("no server runs");
    return server;
  };
  const port = (): number => (server === undefined ? 1 : Number(new URL(server.url).port));
  /** The way of a runner that dials in to whichever server is there. */
  const way = await startFaultProxy(port);
  const pidOf = (): number => current().process.pid ?? 0;
  let devbox: Devbox | undefined;
  const startDevboxOnce = async (url: string): Promise<void> => {
    if (mode !== "dialled" || devbox !== undefined) return;
    const { body } = await callServer(url, "POST", "/v1/keys", { body: { roles: ["runner"] } });
    devbox = startDevbox({ broker: way.url, key: body.key, claudeBin: binary, env: variables });
    await devbox.said("linked");
  };
  const ownerPid = (): number | undefined => {
    if (mode === "auto") return runnerPid(dataDir);
    return mode === "inline" ? server?.process.pid : devbox?.process.pid;
  };

  return {
    folder: temp.path,
    dataDir,
    journals,
    mode,
    disk,
    bell,
    killedRunners,
    url: () => current().url,
    serverPid: pidOf,
    runnerPid: ownerPid,
    agents: () => livingAgents(journals),
    isUp: () => server !== undefined,
    whenUp: () => bell.until("a server", () => (server === undefined ? undefined : true)).then(() => undefined),
    async start() {
      const started = await startServer(env, join(temp.path, "server.log"));
      server = started;
      await startDevboxOnce(started.url);
      bell.ring();
    },
    async killRunner() {
      const pid = ownerPid();
      if (pid === undefined || mode === "inline") return;
      killedRunners.add(pid);
      process.kill(pid, "SIGKILL");
      if (devbox === undefined) return;
      await devbox.exited();
      devbox.start();
    },
    cutRunner() {
      if (devbox === undefined) return false;
      way.cut();
      return true;
    },
    async end(signal) {
      const { process: child, exit } = current();
      if (mode === "inline" && child.pid !== undefined) killedRunners.add(child.pid);
      server = undefined;
      child.kill(signal);
      return exit;
    },
    said: () => readFileSync(join(temp.path, "server.log"), "utf8").split("\n").slice(-6).join("\n").slice(-2000),
    async stopRunner() {
      await devbox?.[Symbol.asyncDispose]();
      await stopRunner(dataDir);
    },
    async remove() {
      await way[Symbol.asyncDispose]();
      disk.remove();
      temp[Symbol.dispose]();
    },
  };
}

async function startServer(env: NodeJS.ProcessEnv, log: string) {
  const child = spawn(process.execPath, [CLI, "serve", "--json"], { env, stdio: ["ignore", "pipe", "pipe"] });
  const exit = once(child, "exit").then(([code]): number | null => code);
  const said: string[] = [];
  createInterface({ input: child.stderr }).on("line", (line) => {
    said.push(line);
    if (said.length > 20) said.shift();
    appendFileSync(log, `${line}\n`);
  });
  const ready = new Promise<string>((resolve) => {
    createInterface({ input: child.stdout }).once("line", (line) => resolve(JSON.parse(line).url));
  });
  const url = await Promise.race([ready, exit.then(() => undefined)]);
  if (url === undefined) throw new Error(`a server did not start: ${said.join("\n")}`);
  return { url, process: child, exit };
}

function livingAgents(journals: string): number[] {
  const pids = readdirSync(journals).map((name) => Number(name.split(".").at(-2)));
  return pids.filter((pid) => commandLine(pid).includes(journals));
}

/** Empty for a process that is gone, and for a zombie. */
function commandLine(pid: number): string {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, "utf8");
  } catch {
    return "";
  }
}
