import { type ChildProcess, spawn } from "node:child_process";
import { closeSync, openSync } from "node:fs";
import { connect, type Socket } from "node:net";
import { extname } from "node:path";
import { fileURLToPath } from "node:url";
import { BrokerError } from "../../protocol/problems.ts";
import type { Connection } from "./client-link.ts";
import { createStreamLink } from "./link.ts";
import { createRemoteRunner, type RemoteRunner } from "./remote-runner.ts";
import { makePrivateFolder, type RunnerFolder, readRunnerInfo, readText, runnerFolder } from "./runner-folder.ts";

export interface LocalRunnerOptions {
  readonly dataDir: string;
  readonly workspaceRoot: string;
  /** Higher than that of every server of this data directory before. */
  readonly epoch: number;
  /** How long agents go on without a server before they are stopped. Default 10 minutes. */
  readonly awayMs?: number;
  /** How long the runner stays without agents and without a server. Default 5 s. */
  readonly idleMs?: number;
  /** Another server owns the runner now, or it speaks another version: this server has lost its agents' owner for good. */
  readonly onLost?: (error: BrokerError) => void;
}

const AWAY_MS = 10 * 60 * 1000;
const IDLE_MS = 5000;
/** An interpreter's start on a loaded machine; a sweep takes up to 5 s. */
const START_PATIENCE_MS = 20_000;

/**
 * The runner of this data directory: the one that runs, or else a fresh one. It outlives this process; when it dies, its runs end as lost
 * and another one is started. @throws BrokerError runner_unavailable
 */
export async function joinLocalRunner(options: LocalRunnerOptions): Promise<RemoteRunner> {
  const folder = runnerFolder(options.dataDir);
  makePrivateFolder(folder.folder);
  const logBytes = readText(folder.log)?.length ?? 0;
  let lastFault: unknown;
  const runner = createRemoteRunner({
    name: "local",
    epoch: options.epoch,
    ...(options.onLost && { onLost: (error) => options.onLost?.(withRunner(error, folder)) }),
    async connect() {
      try {
        return await reach(options, folder);
      } catch (error) {
        lastFault = error;
        throw error;
      }
    },
  });
  const late = Promise.withResolvers<never>();
  const timer = setTimeout(() => late.reject(neverCame(folder, logBytes, lastFault)), START_PATIENCE_MS);
  try {
    await Promise.race([runner.linked(), late.promise]);
    return runner;
  } catch (error) {
    await runner.close();
    throw error instanceof BrokerError ? withRunner(error, folder) : error;
  } finally {
    clearTimeout(timer);
  }
}

async function reach(options: LocalRunnerOptions, folder: RunnerFolder): Promise<Connection> {
  const running = await dial(folder).catch(() => undefined);
  if (running !== undefined) return running;
  await startProgram(options, folder);
  return dial(folder);
}

/** A runner that has just ended may leave its file behind, and a socket on which nobody listens: then this rejects. */
async function dial(folder: RunnerFolder): Promise<Connection> {
  const info = readRunnerInfo(folder);
  const secret = readText(folder.secret);
  if (info === undefined || secret === undefined) throw new Error("no runner has said where it is");
  const socket = await new Promise<Socket>((connected, failed) => {
    const trial = connect(info.socket, () => {
      trial.off("error", failed);
      connected(trial);
    });
    trial.once("error", failed);
  });
  return { link: createStreamLink(socket), secret };
}

/** Starts a runner and waits until it is ready, or says that another one is. */
async function startProgram(options: LocalRunnerOptions, folder: RunnerFolder): Promise<void> {
  // A second starter must not take away what the first one's runner says.
  const log = openSync(folder.log, "a", 0o600);
  let child: ChildProcess;
  try {
    child = spawn(process.execPath, programArguments(options), {
      env: programEnvironment(),
      cwd: folder.folder,
      // A session of its own: a Ctrl-C in the server's terminal is not for it.
      detached: true,
      stdio: ["ignore", log, log, "pipe"],
    });
  } finally {
    closeSync(log);
  }
  child.unref();
  // `held`: another one is there, or on its way; it is dialled, or looked for again.
  if ((await readOnce(child)) === undefined) throw new Error("the runner ended before it was ready");
}

/** Nothing else of the server's: its keys are not for agents. Sessions bring what agents get. */
function programEnvironment(): Record<string, string> {
  const { NODE_COMPILE_CACHE } = process.env;
  return {
    PATH: "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    LANG: "C.UTF-8",
    // Where Node keeps compiled code, if anywhere: a start takes half as long.
    ...(NODE_COMPILE_CACHE !== undefined && { NODE_COMPILE_CACHE }),
  };
}

function programArguments({
  dataDir,
  workspaceRoot,
  awayMs = AWAY_MS,
  idleMs = IDLE_MS,
}: LocalRunnerOptions): string[] {
  const program = fileURLToPath(new URL(`../../cli${extname(import.meta.url)}`, import.meta.url));
  const places = [`--data-dir=${dataDir}`, `--workspace-root=${workspaceRoot}`];
  return [program, "runner", "--local", ...places, `--away-ms=${awayMs}`, `--idle-ms=${idleMs}`, "--ready-fd=3"];
}

/** The first thing that it says on its ready pipe; undefined when it ends without a word. */
async function readOnce(child: ChildProcess): Promise<unknown> {
  const pipe = child.stdio[3];
  if (pipe === null || pipe === undefined || !("on" in pipe)) throw new Error("no pipe");
  const { promise, resolve, reject } = Promise.withResolvers<unknown>();
  child.once("error", reject);
  pipe.once("data", (line: Buffer) => {
    pipe.destroy();
    resolve(JSON.parse(line.toString("utf8")));
  });
  pipe.once("close", () => resolve(undefined));
  return promise;
}

/** What it said since then. */
function neverCame({ log }: RunnerFolder, logBytes: number, cause: unknown): BrokerError {
  const said = readText(log)?.slice(logBytes).trim().split("\n").slice(-3).join(" ") ?? "";
  const why = said === "" ? "" : ` It said: ${said.slice(-500)}`;
  return new BrokerError("runner_unavailable", `The local runner did not start; its log is ${log}.${why}`, { cause });
}

/** A runner of another version goes on until it is told to stop: whoever reads the refusal must learn how. */
function withRunner(error: BrokerError, folder: RunnerFolder): BrokerError {
  const info = readRunnerInfo(folder);
  if (error.details?.["reason"] !== "version_unsupported" || info === undefined) return error;
  const { pid, version } = info;
  const what = `It is process ${pid} (${folder.info}), of version ${version}.`;
  const how = `\`patchbay runner --stop\`, or SIGTERM, stops it in order and ends its agents; their sessions go on with the next message.`;
  return new BrokerError(error.code, `${error.message} ${what} ${how}`, {
    cause: error,
    details: { ...error.details, pid },
  });
}
