import { type ChildProcess, spawn } from "node:child_process";
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { type FakeBehaviour, fakeAgentBinary } from "./fake-agent-spec.ts";
import { makeTempDir } from "./temp-dir.ts";

const PROGRAM = fileURLToPath(new URL("../../src/cli.ts", import.meta.url));

export interface DialledOptions {
  readonly broker: string;
  readonly key: string;
  readonly name?: string;
  readonly labels?: Readonly<Record<string, string>>;
  readonly awayMs?: number;
  readonly behaviour?: FakeBehaviour;
  /** Another CLI than the fake agent. */
  readonly claudeBin?: string;
  readonly env?: Readonly<Record<string, string>>;
}

/** A machine where `patchbay runner --broker` runs, one process after the other. */
export interface Devbox extends AsyncDisposable {
  readonly folder: string;
  readonly dataDir: string;
  /** The process that runs now. */
  readonly process: ChildProcess;
  /** What it has said. */
  readonly lines: readonly string[];
  /** Resolves with the first line, said or to come from line `from` on, that has the text in it. */
  said(text: string, from?: number): Promise<string>;
  exited(): Promise<{ code: number | null; signal: NodeJS.Signals | null }>;
  /** Starts the next process. */
  start(options?: Partial<DialledOptions>): void;
}

export function startDevbox(given: DialledOptions): Devbox {
  const temp = makeTempDir();
  const dataDir = join(temp.path, "runner");
  const agents = join(temp.path, "agents");
  mkdirSync(agents);
  const tokenFile = join(temp.path, "token");
  const lines: string[] = [];
  const watchers = new Set<() => void>();
  let child: ChildProcess;
  let exit: Promise<{ code: number | null; signal: NodeJS.Signals | null }>;

  function start(options: Partial<DialledOptions> = {}): void {
    const { broker, key, name = "box", labels = {}, awayMs, behaviour = {}, claudeBin, env } = { ...given, ...options };
    writeFileSync(tokenFile, key, { mode: 0o600 });
    const args = ["runner", "--broker", broker, "--token-file", tokenFile, "--name", name, "--data-dir", dataDir];
    for (const [label, value] of Object.entries(labels)) args.push("--label", `${label}=${value}`);
    if (awayMs !== undefined) args.push("--away-ms", String(awayMs));
    child = spawn(
      process.execPath,
      [PROGRAM, ...args, "--claude-bin", claudeBin ?? fakeAgentBinary(agents, behaviour)],
      {
        env: { PATH: process.env["PATH"] ?? "", HOME: temp.path, ...env },
        stdio: ["ignore", "pipe", "pipe"],
      },
    );
    for (const stream of [child.stdout, child.stderr]) {
      if (stream === null) continue;
      createInterface({ input: stream }).on("line", (line) => {
        lines.push(line);
        for (const watcher of watchers) watcher();
      });
    }
    exit = new Promise((ended) => child.once("exit", (code, signal) => ended({ code, signal })));
    void exit.then(() => {
      for (const watcher of watchers) watcher();
    });
  }
  start();

  return {
    folder: temp.path,
    dataDir,
    get process() {
      return child;
    },
    lines,
    async said(text, from = 0) {
      const { promise, resolve, reject } = Promise.withResolvers<string>();
      const look = (): void => {
        const found = lines.slice(from).find((line) => line.includes(text));
        if (found !== undefined) resolve(found);
        else if (child.exitCode !== null) reject(new Error(`the runner ended: ${lines.slice(-3).join(" | ")}`));
      };
      watchers.add(look);
      look();
      return promise.finally(() => watchers.delete(look));
    },
    exited: () => exit,
    start,
    async [Symbol.asyncDispose]() {
      if (child.exitCode === null && child.signalCode === null) {
        child.kill("SIGCONT");
        child.kill("SIGTERM");
      }
      await exit;
      temp[Symbol.dispose]();
    },
  };
}
