import { execFile } from "node:child_process";
import { accessSync, constants, statSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { delimiter, dirname, join, resolve } from "node:path";
import { BrokerError } from "../protocol/problems.ts";

/** The CLI that agents run, and what it says its version is (such as `2.1.332`). */
export interface ClaudeBinary {
  readonly command: string;
  readonly version: string;
}

/** A native program answers in under 0.1 s; the rest is for a machine under load. */
const VERSION_PATIENCE_MS = 15_000;

/**
 * Finds the CLI and asks it for its version: the configured one and no other; else the project's own dependency; else `claude`
 * on the PATH. @throws BrokerError agent_unavailable, saying what to do
 */
export async function resolveClaude({ configured }: { configured?: string | undefined }): Promise<ClaudeBinary> {
  if (configured !== undefined) {
    const command = configured.includes("/") ? resolve(configured) : onPath(configured);
    if (command === undefined) throw unavailable(`PATCHBAY_CLAUDE_BIN: no program ${configured} on the PATH`);
    return ask(command, "PATCHBAY_CLAUDE_BIN");
  }
  const command = fromDependency() ?? onPath("claude");
  if (command === undefined) throw unavailable("The claude CLI was not found");
  return ask(command, "The claude CLI");
}

/** The platform packages hold the bare program; its own npm start script is never needed. */
function fromDependency(): string | undefined {
  const require = createRequire(import.meta.url);
  const platform = `@anthropic-ai/claude-code-${process.platform}-${process.arch}`;
  for (const name of [platform, `${platform}-musl`]) {
    try {
      const command = join(dirname(require.resolve(`${name}/package.json`)), "claude");
      if (isExecutable(command)) return command;
    } catch {
      // Not installed: it is an optional dependency, for its own platform only.
    }
  }
  return undefined;
}

function onPath(name: string): string | undefined {
  const folders = (process.env["PATH"] ?? "").split(delimiter).filter((folder) => folder !== "");
  return folders.map((folder) => resolve(folder, name)).find(isExecutable);
}

function isExecutable(path: string): boolean {
  try {
    accessSync(path, constants.X_OK);
    return statSync(path).isFile();
  } catch {
    return false;
  }
}

async function ask(command: string, what: string): Promise<ClaudeBinary> {
  // Nothing of the server's environment, and no home to write into: a question is not a session.
  const env = { PATH: "/usr/local/bin:/usr/bin:/bin", HOME: tmpdir() };
  const options = { env, cwd: tmpdir(), timeout: VERSION_PATIENCE_MS, killSignal: "SIGKILL" as const };
  const answer = await new Promise<string>((answered, failed) => {
    execFile(command, ["--version"], options, (error, stdout) => (error === null ? answered(stdout) : failed(error)));
  }).catch((error: unknown) => {
    throw unavailable(`${what}: ${command} --version failed (${reason(error)})`, error);
  });
  const version = /^\d+\.\d+\.\d+\S*/.exec(answer.trim())?.[0];
  if (version === undefined) throw unavailable(`${what}: ${command} --version did not print a version`);
  return { command, version };
}

function reason(error: unknown): string {
  if (!(error instanceof Error)) return "unknown";
  if ("killed" in error && error.killed === true) return `no answer in ${VERSION_PATIENCE_MS} ms`;
  return "code" in error && error.code !== null ? String(error.code) : error.message;
}

function unavailable(what: string, cause?: unknown): BrokerError {
  return new BrokerError(
    "agent_unavailable",
    `${what}. Install the project's dependencies without --omit=optional, or set PATCHBAY_CLAUDE_BIN to a claude program.`,
    { cause },
  );
}
