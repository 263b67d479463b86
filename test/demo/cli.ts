import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdirSync, mkdtempSync, rmSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { createInterface } from "node:readline";
import { fieldOf } from "../../src/demo/fields.ts";

const require = createRequire(import.meta.url);

/** The real command line, the newest and the oldest that the product promises. */
export const CLI_VERSIONS = [
  { version: "2.1.332", path: binaryOf(`@anthropic-ai/claude-code-${process.platform}-${process.arch}`) },
  { version: "2.1.197", path: binaryOf(`claude-code-2.1.197-${process.platform}-${process.arch}`) },
] as const;

type Line = Readonly<Record<string, unknown>>;

/** A real CLI in stream-json mode, with state and workspace of its own. */
export interface Cli extends AsyncDisposable {
  readonly workspace: string;
  readonly lines: readonly Line[];
  say(text: string): void;
  write(line: unknown): void;
  /** The next line that fits, searched from the end of the last hit; lines are never lost. */
  next(what: string, predicate: (line: Line) => boolean): Promise<Line>;
  /** Waits for a permission prompt of the tool and answers it; resolves with the input the CLI asked about. */
  answerTool(tool: string, answer: (input: unknown) => unknown): Promise<unknown>;
  result(): Promise<Line>;
}

export function startCli(path: string, modelUrl: string): Cli {
  const root = mkdtempSync(join(tmpdir(), "scripted-model-"));
  const home = join(root, "home");
  const config = join(root, "config");
  const workspace = join(root, "workspace");
  for (const folder of [home, config, workspace]) mkdirSync(folder);
  const child = spawn(path, ARGUMENTS, {
    cwd: workspace,
    detached: true,
    stdio: ["pipe", "pipe", "pipe"],
    env: environment(home, config, modelUrl),
  });
  const reader = readLines(child);
  const write = (line: unknown): void => void child.stdin.write(`${JSON.stringify(line)}\n`);
  return {
    workspace,
    lines: reader.lines,
    write,
    say: (text) => write({ type: "user", message: { role: "user", content: text } }),
    next: reader.next,
    result: () => reader.next("a result", (line) => line.type === "result"),
    async answerTool(tool, answer) {
      const prompt = await reader.next(
        `a permission prompt for ${tool}`,
        (line) => fieldOf(line.request, "subtype") === "can_use_tool" && fieldOf(line.request, "tool_name") === tool,
      );
      const input = fieldOf(prompt.request, "input");
      const response = { subtype: "success", request_id: prompt.request_id, response: answer(input) };
      write({ type: "control_response", response });
      return input;
    },
    async [Symbol.asyncDispose]() {
      const exited = child.exitCode === null && child.signalCode === null ? once(child, "exit") : undefined;
      // The group, because a tool may have left children.
      if (child.pid !== undefined && exited !== undefined) process.kill(-child.pid, "SIGKILL");
      await exited;
      rmSync(root, { recursive: true, force: true, maxRetries: 3 });
    },
  };
}

/** Nothing of the surroundings but PATH: the CLI behaves differently inside another CLI. */
function environment(home: string, config: string, modelUrl: string): Record<string, string> {
  return {
    PATH: process.env.PATH ?? "",
    HOME: home,
    CLAUDE_CONFIG_DIR: config,
    ANTHROPIC_API_KEY: "any",
    ANTHROPIC_BASE_URL: modelUrl,
    CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC: "1",
  };
}

const ARGUMENTS = [
  ..."--output-format stream-json --input-format stream-json --verbose".split(" "),
  ..."--include-partial-messages --permission-prompt-tool stdio".split(" "),
];

/** The slowest thing a test waits for is a background command of five seconds. */
const MAX_WAIT_MS = 40_000;

function binaryOf(packageName: string): string {
  return join(dirname(require.resolve(`${packageName}/package.json`)), "claude");
}

function readLines(child: ChildProcess) {
  const lines: Line[] = [];
  let position = 0;
  let stderr = "";
  let wake = Promise.withResolvers<void>();
  const signal = (): void => {
    wake.resolve();
    wake = Promise.withResolvers();
  };
  if (child.stdout === null || child.stderr === null) throw new Error("no pipes");
  child.stderr.on("data", (data: Buffer) => {
    stderr += data.toString();
  });
  createInterface({ input: child.stdout, crlfDelay: Number.POSITIVE_INFINITY }).on("line", (text) => {
    lines.push(JSON.parse(text));
    signal();
  });
  child.on("exit", signal);
  const next = async (what: string, predicate: (line: Line) => boolean): Promise<Line> => {
    const late = Promise.withResolvers<never>();
    const seen = (): string =>
      lines
        .slice(-5)
        .map((line) => JSON.stringify(line).slice(0, 300))
        .join("\n");
    const fail = (): void => late.reject(new Error(`no ${what} within ${MAX_WAIT_MS} ms; last lines:\n${seen()}`));
    const timer = setTimeout(fail, MAX_WAIT_MS);
    try {
      while (true) {
        for (; position < lines.length; position += 1) {
          const line = lines[position];
          if (line === undefined || !predicate(line)) continue;
          position += 1;
          return line;
        }
        if (child.exitCode !== null) throw new Error(`the CLI exited (${child.exitCode}) before ${what}: ${stderr}`);
        await Promise.race([wake.promise, late.promise]);
      }
    } finally {
      clearTimeout(timer);
    }
  };
  return { lines, next };
}
