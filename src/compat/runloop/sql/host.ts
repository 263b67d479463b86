import { type ChildProcess, spawn } from "node:child_process";
import { mkdirSync } from "node:fs";
import { dirname } from "node:path";
import { fileURLToPath } from "node:url";
import { BrokerError } from "../../../protocol/problems.ts";
import type { FromProgram, SqlJob, SqlLimits, SqlStep, ToProgram } from "./port.ts";

/** One process that runs statements, one job at a time. A statement in it can be ended only by ending the process: SQLite has no other brake in Node. */
export interface SqlHost {
  /** @throws BrokerError sql_limit, draining, internal. Nothing of the job has happened, unless the message says that this is not known */
  run(job: SqlJob): Promise<readonly SqlStep[]>;
  readonly dead: boolean;
  stop(): void;
}

const PROGRAM = fileURLToPath(
  import.meta.url.endsWith(".ts")
    ? new URL("./host.worker.ts", import.meta.url)
    : new URL("./host.worker.js", import.meta.url),
);

/** What V8 reserves for itself counts as data of the process, used or not. In bytes. */
const RESERVED_BYTES = 768 * 1024 * 1024;
const HEAP_MEBIBYTES = 64;
/** POSIX counts file sizes in these, whatever the file system's blocks are. */
const BLOCK_BYTES = 512;
const START_TIMEOUT_MS = 20_000;
const COMMIT_TIMEOUT_MS = 30_000;
/** A process that has worked for so long is replaced by a fresh one, so that its time can be bounded. */
const WORKED_MS = 60_000;

/**
 * The system's own bounds. File size and memory: for what SQLite's limits leave open (sorters, temporary tables, aggregates that grow in
 * memory). Processor time: a server that was killed can no longer stop a statement that would run for ever.
 */
const START = `ulimit -f "$1" && ulimit -t "$2" && { ulimit -d "$3" || :; } 2>/dev/null; shift 3; exec "$@"`;

function start(limits: SqlLimits, temporary: string): ChildProcess {
  mkdirSync(temporary, { recursive: true, mode: 0o700 });
  const bounds = [
    Math.ceil((2 * limits.databaseBytes) / BLOCK_BYTES),
    Math.ceil((2 * WORKED_MS + limits.timeMs) / 1000),
    Math.ceil((RESERVED_BYTES + limits.memoryBytes) / 1024),
  ];
  const node = [process.execPath, `--max-old-space-size=${HEAP_MEBIBYTES}`, "--no-warnings", PROGRAM];
  return spawn("/bin/sh", ["-c", START, "sh", ...bounds.map(String), ...node], {
    stdio: ["ignore", "ignore", "ignore", "ipc"],
    // Nothing of ours: not its secrets, and no option of Node.
    env: { SQLITE_TMPDIR: temporary },
  });
}

const cannotStart = (): BrokerError => new BrokerError("internal", "The SQL process cannot be started. Try again.");
const outOfMemory = (): BrokerError =>
  new BrokerError("sql_limit", "The statement needs more memory than is allowed. Ask for less at a time.");
const tooLong = (timeMs: number): BrokerError =>
  new BrokerError("sql_limit", `The statement was stopped: it ran for more than ${timeMs} ms. Ask for less at a time.`);
const unknown = (): BrokerError =>
  new BrokerError("internal", "It is not known whether the statement has happened. Look before you send it again.");
export const shuttingDown = (): BrokerError =>
  new BrokerError("draining", "The server is shutting down; nothing of the statement has happened. Send it again.");

interface RunningJob {
  readonly answer: PromiseWithResolvers<readonly SqlStep[]>;
  timer: NodeJS.Timeout;
  /** From here on it may have happened. */
  committing: boolean;
}

/** Starts a process. Its temporary files go to `temporary`, which is made. */
export function startSqlHost(limits: SqlLimits, temporary: string): SqlHost {
  const child = start(limits, temporary);
  const ready = Promise.withResolvers<void>();
  let job: RunningJob | undefined;
  let ended: BrokerError | undefined;
  let workedMs = 0;
  const send = (message: ToProgram): void => void child.send(message, (error) => error && die(cannotStart()));
  const settle = (): RunningJob | undefined => {
    const current = job;
    job = undefined;
    clearTimeout(current?.timer);
    return current;
  };
  const die = (why: BrokerError): void => {
    ended ??= why;
    child.kill("SIGKILL");
    ready.reject(why);
    const current = settle();
    current?.answer.reject(current.committing ? unknown() : why);
  };
  const commit = (): void => {
    if (job === undefined) return;
    clearTimeout(job.timer);
    job.committing = true;
    job.timer = setTimeout(() => die(unknown()), COMMIT_TIMEOUT_MS);
    send({ kind: "finish" });
  };
  const startTimer = setTimeout(() => die(cannotStart()), START_TIMEOUT_MS).unref();
  // Whoever runs a job hears of it; nobody else has to.
  ready.promise.finally(() => clearTimeout(startTimer)).catch(() => undefined);
  child.on("message", (message: FromProgram) => {
    if (message.kind === "ready") ready.resolve();
    else if (message.kind === "ran") commit();
    else settle()?.answer.resolve(message.steps);
  });
  child.on("error", () => die(cannotStart()));
  child.on("exit", () => die(job === undefined ? cannotStart() : outOfMemory()));
  // A process without work keeps nobody alive.
  child.unref();
  child.channel?.unref();

  async function work(wanted: SqlJob): Promise<readonly SqlStep[]> {
    await ready.promise;
    if (ended !== undefined) throw ended;
    mkdirSync(dirname(wanted.file), { recursive: true, mode: 0o700 });
    const { timeMs } = wanted.limits;
    const answer = Promise.withResolvers<readonly SqlStep[]>();
    job = { answer, committing: false, timer: setTimeout(() => die(tooLong(timeMs)), timeMs) };
    send({ kind: "run", job: wanted });
    return answer.promise;
  }
  return {
    async run(wanted) {
      const startedMs = performance.now();
      child.ref();
      child.channel?.ref();
      try {
        return await work(wanted);
      } finally {
        child.unref();
        child.channel?.unref();
        workedMs += performance.now() - startedMs;
        if (workedMs > WORKED_MS) die(cannotStart());
      }
    },
    get dead() {
      return ended !== undefined;
    },
    stop: () => die(shuttingDown()),
  };
}
