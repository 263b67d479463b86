import { type ChildProcessWithoutNullStreams, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync } from "node:fs";
import { cutLines } from "./lines.ts";
import { pumpOutput } from "./output-pump.ts";
import type { Agent, AgentExit, AgentSpec, Launcher, RawHandlers, StopPatience } from "./port.ts";
import { createProcessGroup } from "./process-group.ts";
import { keepStderrTail } from "./stderr-tail.ts";
import { createAgentStdin, stdinLine } from "./stdin.ts";
import { createStopLadder } from "./stop-ladder.ts";

/** A process that closed its stdin gets this long to exit by itself; deaf, it is of no use. */
const DEAF_MS = 2000;
const DEAF_PATIENCE: StopPatience = { eofMs: 0, termMs: 1000 };

/** Starts agents as plain child processes: each leads its own group, in its own cgroup where one can be made. No shell. */
export const processLauncher: Launcher = {
  name: "process",
  start: (spec, handlers) => startProcess(spec, cutLines(spec.lineLimitBytes, handlers)),
  startRaw: startProcess,
};

function startProcess(spec: AgentSpec, handlers: RawHandlers): Agent {
  let child: ChildProcessWithoutNullStreams;
  try {
    child = spawn(spec.command, spec.args, { cwd: spec.cwd, env: { ...spec.env }, detached: true, stdio: "pipe" });
  } catch (error) {
    return stillborn(Promise.resolve(error), spec, handlers);
  }
  if (child.pid === undefined) return stillborn(firstError(child), spec, handlers);
  return living(child, child.pid, handlers);
}

function living(child: ChildProcessWithoutNullStreams, pid: number, handlers: RawHandlers): Agent {
  const group = createProcessGroup(pid);
  const ladder = createStopLadder({
    eof: () => stdin.end(),
    term: () => child.kill("SIGTERM"),
    kill: () => group.kill(),
  });
  let deafTimer: NodeJS.Timeout | undefined;
  let isStopping = false;
  const stdin = createAgentStdin(child.stdin, {
    broken() {
      deafTimer ??= setTimeout(() => {
        if (!isStopping) ladder.stop(DEAF_PATIENCE);
      }, DEAF_MS).unref();
    },
    overflowed: () => ladder.kill(),
  });
  const stdout = pumpOutput(child.stdout, handlers, (error) => {
    reportFault(error);
    ladder.kill();
  });
  const stderr = keepStderrTail(child.stderr);
  // A signal that cannot be sent is an `error` too; the process is going anyway.
  child.on("error", () => {});

  async function exit(): Promise<AgentExit> {
    const [code, signal] = await leaderExit(child);
    const how = ladder.ended();
    clearTimeout(deafTimer);
    // What the leader leaves behind would hold its pipes open, and work on unseen.
    group.kill();
    await group.gone();
    const [stderrTail] = await Promise.all([stderr.finished(), stdout.finished()]);
    return tellExit({ code, signal, how, stderrTail }, handlers);
  }

  const exited = exit();
  return {
    pid,
    write: async (message) => stdin.write(stdinLine(message)),
    writeLine: stdin.write,
    stop(patience) {
      isStopping = true;
      ladder.stop(patience);
      return exited;
    },
  };
}

function tellExit(exit: AgentExit, handlers: RawHandlers): AgentExit {
  try {
    handlers.exited(exit);
  } catch (error) {
    reportFault(error);
  }
  return exit;
}

/** A handler that fails is a fault of ours; it may cost its agent, never the server and the other sessions. */
function reportFault(error: unknown): void {
  process.emitWarning(error instanceof Error ? error : new Error(String(error)));
}

function leaderExit(child: ChildProcessWithoutNullStreams): Promise<[number | null, NodeJS.Signals | null]> {
  return new Promise((resolve) => child.once("exit", (code, signal) => resolve([code, signal])));
}

async function firstError(child: ChildProcessWithoutNullStreams): Promise<unknown> {
  const [error]: unknown[] = await once(child, "error");
  return error;
}

/** An agent that never came to be: everything about it is its exit. */
function stillborn(reason: Promise<unknown>, spec: AgentSpec, handlers: RawHandlers): Agent {
  async function exit(): Promise<AgentExit> {
    const spawnError = explain(await reason, spec);
    return tellExit({ code: null, signal: null, how: "exited", stderrTail: "", spawnError }, handlers);
  }
  const exited = exit();
  return { pid: undefined, write: async () => {}, writeLine: async () => {}, stop: () => exited };
}

/** Plain words, with the system's code and without paths of this machine: clients read it. */
function explain(error: unknown, spec: AgentSpec): string {
  const code = error instanceof Error && "code" in error ? String(error.code) : "unknown";
  if (code === "ENOENT" && !existsSync(spec.cwd)) return "the working folder does not exist (ENOENT)";
  const known: Record<string, string> = {
    ENOENT: "the agent's program, or its interpreter, does not exist",
    EACCES: "the agent's program may not be executed, or the working folder not be entered",
    ENOTDIR: "a part of the path to the agent's program or working folder is not a folder",
    E2BIG: "the agent's arguments and environment are too large together",
    EAGAIN: "the machine allows no further process",
    ENOMEM: "the machine has no memory for a further process",
    EMFILE: "the server has no file descriptors left",
  };
  return `${known[code] ?? "the agent's program could not be started"} (${code})`;
}
