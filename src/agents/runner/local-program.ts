import { closeSync, rmSync, writeSync } from "node:fs";
import { createServer, type Server } from "node:net";
import { BrokerError } from "../../protocol/problems.ts";
import type { StopPatience } from "../port.ts";
import { processLauncher } from "../process.ts";
import { identity } from "../sweep.ts";
import { createHost, type Host } from "./host.ts";
import { createLedger } from "./ledger.ts";
import { createStreamLink } from "./link.ts";
import {
  makeSecret,
  type RunnerFolder,
  removeSocket,
  runnerFolder,
  socketPath,
  writePrivateFile,
} from "./runner-folder.ts";
import { holdFolder, sweepLeftovers } from "./runner-home.ts";

export interface LocalProgramOptions {
  readonly dataDir: string;
  readonly workspaceRoot: string;
  readonly version: string;
  /** How long agents go on without a server before they are stopped. */
  readonly awayMs: number;
  /** How long the runner stays without agents and without a server. */
  readonly idleMs: number;
  /** Whoever started the runner reads there, once, one JSON line: `{"ready": true}`, or `{"held": true}` when another one runs. */
  readonly readyFd: number | undefined;
}

/** SIGTERM to the end in under 10 s, whatever the agents do. */
const STOP_PATIENCE: StopPatience = { eofMs: 3000, termMs: 2000 };
/** How long the server has to take what the agents still said. */
const TELL_MS = 2000;
const STOP_LIMIT_MS = 9500;

/** Runs the runner of a data directory until it is not needed any more, or told to stop. Then the process ends. */
export async function runLocalRunner(options: LocalProgramOptions): Promise<void> {
  const folder = runnerFolder(options.dataDir);
  const lock = holdFolder(folder);
  if (lock === undefined) {
    tellStarter(options.readyFd, { held: true });
    return;
  }
  await sweepLeftovers(folder, options.dataDir);
  const secret = makeSecret(folder);
  const host = createLocalHost(options, folder, () => life.check());
  const server = createServer((socket) => host.accept(createStreamLink(socket), secret));
  const socket = await listen(server, folder);
  const stop = createStop(host, server, folder, socket);
  const life = createLife(options, host, stop);
  process.on("SIGTERM", stop);
  process.on("SIGINT", stop);
  const startTime = identity(process.pid)?.startTime ?? "";
  const info = { pid: process.pid, startTime, socket, version: options.version };
  writePrivateFile(folder.info, JSON.stringify(info));
  tellStarter(options.readyFd, { ready: true });
  life.check();
  // The lock must be reachable until the end: what is collected is closed.
  await new Promise((_, failed) => server.once("error", failed)).finally(() => lock.close());
}

function createLocalHost(options: LocalProgramOptions, folder: RunnerFolder, changed: () => void): Host {
  const ledger = createLedger(folder.agents);
  return createHost({
    launcher: processLauncher,
    settings: { dataDir: options.dataDir, workspaceRoot: options.workspaceRoot, binary: askedFor },
    spoolFolder: folder.spool,
    about: { pid: process.pid, version: options.version },
    changed,
    began: ledger.add,
    ended: (agent) => agent !== undefined && ledger.remove(agent),
  });
}

/** The server, on the same machine, has looked for the CLI. */
async function askedFor(asked: string | undefined): Promise<{ command: string }> {
  if (asked !== undefined) return { command: asked };
  throw new BrokerError("agent_unavailable", "The server did not say which program the agent is.");
}

async function listen(server: Server, folder: RunnerFolder): Promise<string> {
  const path = socketPath(folder);
  // One that a killed runner made before it could write down where.
  rmSync(path, { force: true });
  const before = process.umask(0o177);
  try {
    await new Promise<void>((listening, failed) => {
      server.once("error", failed);
      server.listen(path, () => {
        server.off("error", failed);
        listening();
      });
    });
  } finally {
    process.umask(before);
  }
  return path;
}

/** Stops the agents in order, tells the server, and ends the process. */
function createStop(host: Host, server: Server, folder: RunnerFolder, socket: string): () => void {
  let isStopping = false;
  async function stop(): Promise<void> {
    setTimeout(() => process.exit(1), STOP_LIMIT_MS).unref();
    server.close();
    // From here on a server that looks for the runner starts another one, which waits for the lock.
    rmSync(folder.info, { force: true });
    removeSocket(socket);
    await host.stopAll(STOP_PATIENCE, TELL_MS);
    await host.close();
    process.exit(0);
  }
  return () => {
    if (isStopping) return;
    isStopping = true;
    void stop();
  };
}

/** Watches whether the runner is still needed. */
function createLife({ awayMs, idleMs }: LocalProgramOptions, host: Host, stop: () => void): { check(): void } {
  let timer: NodeJS.Timeout | undefined;
  let waitingFor: "idle" | "away" | undefined;
  return {
    check() {
      const now = host.isOwned() ? undefined : host.runCount() === 0 ? "idle" : "away";
      if (now === waitingFor) return;
      clearTimeout(timer);
      waitingFor = now;
      if (now !== undefined) timer = setTimeout(stop, now === "idle" ? idleMs : awayMs);
    },
  };
}

/** Once; then the pipe is closed, before any agent could inherit it. */
function tellStarter(fd: number | undefined, json: object): void {
  if (fd === undefined) return;
  try {
    writeSync(fd, `${JSON.stringify(json)}\n`);
  } catch {
    // Whoever started us has gone; somebody else will come.
  }
  closeSync(fd);
}
