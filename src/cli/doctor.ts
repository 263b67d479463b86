import { execFile } from "node:child_process";
import { constants } from "node:fs";
import { access, stat } from "node:fs/promises";
import { createServer } from "node:net";
import { dirname } from "node:path";
import { promisify } from "node:util";
import { Command } from "commander";
import { resolveClaude } from "../agents/claude-binary.ts";
import { findLocalRunner } from "../agents/runner/running.ts";
import { readConfiguration } from "../configuration.ts";
import { type ResolvedOptions, resolveOptions } from "../options.ts";
import { BrokerError } from "../protocol/problems.ts";
import { VERSION } from "../version.ts";
import { withBrokerFlags } from "./serve.ts";

/** One thing that was looked at. `advice` says what to do where it is not ok. */
export interface Finding {
  readonly level: "ok" | "warn" | "fail";
  readonly what: string;
  readonly advice?: string;
}

const ok = (what: string): Finding => ({ level: "ok", what });
const warn = (what: string, advice: string): Finding => ({ level: "warn", what, advice });
const fail = (what: string, advice: string): Finding => ({ level: "fail", what, advice });

const LEAST_NODE = [24, 15] as const;
/** The version that this project is tested with is newer; older ones lack flags that the server gives. */
const LEAST_CLI = [2, 1, 197] as const;

function isAtLeast(version: string, least: readonly number[]): boolean {
  const parts = version.split(".").map((part) => Number.parseInt(part, 10));
  for (const [index, wanted] of least.entries()) {
    const part = parts[index] ?? 0;
    if (part !== wanted) return part > wanted;
  }
  return true;
}

function checkNode(): Finding {
  const { node } = process.versions;
  if (isAtLeast(node, LEAST_NODE)) return ok(`Node ${node}`);
  return fail(
    `Node ${node} is too old`,
    `Use Node ${LEAST_NODE.join(".")} or newer; npm scripts of a checkout bring their own.`,
  );
}

async function checkClaude({ claudeBin }: ResolvedOptions): Promise<Finding> {
  try {
    const { command, version } = await resolveClaude({ configured: claudeBin });
    if (isAtLeast(version, LEAST_CLI)) return ok(`claude CLI ${version} (${command})`);
    return warn(
      `claude CLI ${version} (${command}) is older than ${LEAST_CLI.join(".")}`,
      "Update it, or unset PATCHBAY_CLAUDE_BIN.",
    );
  } catch (error) {
    return fail("claude CLI", error instanceof Error ? error.message : String(error));
  }
}

const CREDENTIALS = [
  "ANTHROPIC_API_KEY",
  "ANTHROPIC_AUTH_TOKEN",
  "CLAUDE_CODE_OAUTH_TOKEN",
  "CLAUDE_CODE_USE_BEDROCK",
  "CLAUDE_CODE_USE_VERTEX",
];

function checkCredentials({ agentEnv }: ResolvedOptions): Finding {
  const found = CREDENTIALS.find((name) => (agentEnv[name] ?? "") !== "");
  if (found !== undefined) return ok(`credentials for agents (${found})`);
  const mistaken = CREDENTIALS.find((name) => (process.env[name] ?? "") !== "");
  const hint =
    mistaken === undefined ? "" : ` ${mistaken} is set for this program, but nothing of that reaches an agent.`;
  return warn(
    "no credentials for agents",
    `Set PATCHBAY_AGENT_ENV_${mistaken ?? "ANTHROPIC_API_KEY"}, or give each session its own.${hint}`,
  );
}

/** The folder itself, or the nearest one above it that exists. */
async function existing(path: string): Promise<string> {
  try {
    await stat(path);
    return path;
  } catch {
    return dirname(path) === path ? path : existing(dirname(path));
  }
}

async function checkFolder(name: string, path: string): Promise<Finding> {
  try {
    const place = await existing(path);
    await access(place, constants.W_OK | constants.X_OK);
    if (!(await stat(place)).isDirectory())
      return fail(`${name} ${path} is not a folder`, "Choose another place for it.");
    return ok(`${name} ${path} ${place === path ? "is writable" : "can be made"}`);
  } catch {
    return fail(`${name} ${path} cannot be written`, "Change its owner or mode, or choose another place.");
  }
}

function checkPort({ host, port }: ResolvedOptions): Promise<Finding> {
  return new Promise((resolve) => {
    const probe = createServer();
    probe.once("error", (error: NodeJS.ErrnoException) => {
      const busy = error.code === "EADDRINUSE";
      const advice = "Stop what holds it (perhaps a running Patchbay), or set PATCHBAY_PORT.";
      if (busy) resolve(warn(`${host}:${port} is in use`, advice));
      else
        resolve(fail(`cannot listen on ${host}:${port} (${error.code})`, "Correct PATCHBAY_HOST and PATCHBAY_PORT."));
    });
    probe.listen({ host, port, exclusive: true }, () => probe.close(() => resolve(ok(`${host}:${port} is free`))));
  });
}

async function checkSandbox(): Promise<Finding> {
  const args = ["--ro-bind", "/", "/", "--unshare-pid", "--proc", "/proc", "true"];
  try {
    await promisify(execFile)("bwrap", args, { timeout: 5_000 });
    return ok("bubblewrap works");
  } catch (error) {
    const missing = error instanceof Error && "code" in error && error.code === "ENOENT";
    if (missing)
      return warn(
        "bubblewrap is not installed",
        "Agents run without a sandbox. On Debian: apt-get install -y bubblewrap",
      );
    return warn(
      "bubblewrap cannot make a sandbox here",
      "Agents run without one. Allow unprivileged user namespaces, or use a container per tenant.",
    );
  }
}

/** A runner of an earlier server, or of one that runs. */
function checkRunner({ dataDir, runner }: ResolvedOptions): Finding {
  const running = findLocalRunner(dataDir);
  if (running === undefined) return ok(`no runner runs (PATCHBAY_RUNNER=${runner})`);
  const { pid, version, agents } = running;
  const what = `a runner runs (pid ${pid}, version ${version}, agents: ${agents})`;
  const stop = "`patchbay runner --stop` ends it, and its agents.";
  if (runner === "inline")
    return warn(what, `A server with PATCHBAY_RUNNER=inline does not take up its agents. ${stop}`);
  if (version === VERSION) return ok(what);
  return warn(
    what,
    `This is version ${VERSION}. A server takes up its agents if both speak the same protocol. ${stop}`,
  );
}

/** Looks at everything that a server needs. Makes and changes nothing. */
async function examine(options: ResolvedOptions): Promise<readonly Finding[]> {
  return Promise.all([
    checkNode(),
    checkClaude(options),
    checkCredentials(options),
    checkFolder("data directory", options.dataDir),
    checkFolder("workspace root", options.workspaceRoot),
    checkPort(options),
    checkRunner(options),
    checkSandbox(),
  ]);
}

function configuration(flags: Record<string, unknown>): ResolvedOptions | Finding {
  try {
    return resolveOptions(readConfiguration(process.env, flags).broker);
  } catch (error) {
    if (error instanceof BrokerError) return fail("configuration", error.message);
    throw error;
  }
}

/** `patchbay doctor`: one line for each check; exit code 1 when one failed. */
export function doctorCommand(): Command {
  const command = new Command("doctor").description(
    "check what a server needs; each line is ok, warn or fail, with what to do",
  );
  command.option("--json", "one JSON object per line");
  return withBrokerFlags(command).action(async (flags: Record<string, unknown>) => {
    const options = configuration(flags);
    const findings = "level" in options ? [checkNode(), options] : [ok("configuration"), ...(await examine(options))];
    for (const finding of findings) {
      const { level, what, advice } = finding;
      if (flags["json"] === true) console.log(JSON.stringify(finding));
      else console.log(`${level.padEnd(4)}  ${what}${advice === undefined ? "" : `\n      ${advice}`}`);
    }
    if (findings.some(({ level }) => level === "fail")) process.exitCode = 1;
  });
}
