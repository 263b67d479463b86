import { spawn } from "node:child_process";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";

const PROGRAM = fileURLToPath(new URL("../../src/cli.ts", import.meta.url));

export interface CliOptions {
  readonly env?: Readonly<Record<string, string>>;
  /** All of stdin; without it stdin stays open and empty. */
  readonly stdin?: string;
}

export interface CliEnd {
  readonly code: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

/** A running `patchbay`, as a person or script would start it: nothing of this test's environment but PATH. */
export interface CliProcess extends AsyncDisposable {
  readonly pid: number;
  /** The first line of stdout (or stderr) that fits, past or future; rejects when the program ends without it. */
  line(fits: RegExp, from?: "stdout" | "stderr"): Promise<string>;
  type(text: string): void;
  endInput(): void;
  signal(name: NodeJS.Signals): void;
  readonly ended: Promise<CliEnd>;
}

export function startCli(args: readonly string[], { env = {}, stdin }: CliOptions = {}): CliProcess {
  const child = spawn(process.execPath, [PROGRAM, ...args], { env: { PATH: process.env["PATH"] ?? "", ...env } });
  const text = { stdout: "", stderr: "" };
  const lines: Record<"stdout" | "stderr", string[]> = { stdout: [], stderr: [] };
  const waiting = new Set<() => void>();
  let over = false;
  const changed = (): void => {
    for (const look of [...waiting]) look();
  };
  for (const name of ["stdout", "stderr"] as const) {
    child[name].setEncoding("utf8").on("data", (chunk: string) => {
      text[name] += chunk;
    });
    createInterface({ input: child[name] }).on("line", (line) => {
      lines[name].push(line);
      changed();
    });
  }
  child.stdin.on("error", () => {});
  if (stdin !== undefined) child.stdin.end(stdin);
  const ended = new Promise<CliEnd>((resolve) => {
    child.once("close", (code) => {
      over = true;
      changed();
      resolve({ code, ...text });
    });
  });
  return {
    pid: child.pid ?? 0,
    line(fits, from = "stdout") {
      return new Promise((resolve, reject) => {
        const look = (): void => {
          const found = lines[from].find((line) => fits.test(line));
          if (found === undefined && !over) return;
          waiting.delete(look);
          if (found === undefined) reject(new Error(`no ${fits} in ${from}:\n${text[from]}\nstderr:\n${text.stderr}`));
          else resolve(found);
        };
        waiting.add(look);
        look();
      });
    },
    type: (line) => void child.stdin.write(line),
    endInput: () => void child.stdin.end(),
    signal: (name) => void child.kill(name),
    ended,
    async [Symbol.asyncDispose]() {
      if (!over) child.kill("SIGKILL");
      await ended;
    },
  };
}

/** Runs to the end. */
export const runCli = (args: readonly string[], options: CliOptions = {}): Promise<CliEnd> =>
  startCli(args, { stdin: "", ...options }).ended;
