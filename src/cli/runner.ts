import { hostname } from "node:os";
import { join, resolve } from "node:path";
import { Command, Option } from "commander";
import { readRunnerConfiguration } from "../configuration.ts";
import { BrokerError } from "../protocol/problems.ts";
import { rememberBinary } from "../readiness.ts";
import { VERSION } from "../version.ts";
import { stopRunner } from "./stop-runner.ts";

interface RunnerFlags {
  readonly local?: true;
  readonly broker?: string;
  readonly token?: string;
  readonly tokenFile?: string;
  readonly name?: string;
  readonly label: readonly string[];
  readonly claudeBin?: string;
  readonly agentEnv?: readonly string[];
  readonly stop?: true;
  readonly dataDir?: string;
  readonly workspaceRoot?: string;
  readonly awayMs: number;
  readonly idleMs: number;
  readonly readyFd?: number;
}

/** Beside a server's `.patchbay`, should both run in one folder. */
const DATA_DIR = "./.patchbay-runner";

function wholeNumber(value: string): number {
  const number = Number(value);
  if (Number.isSafeInteger(number) && number >= 0) return number;
  throw new BrokerError("config_invalid", `${value} is not a whole number.`);
}

/** `patchbay runner`: the program that owns agents, apart from the server. */
export function runnerCommand(): Command {
  return new Command("runner")
    .description(
      "the program that owns agent processes: on another machine for a broker (--broker), or beside its server (--local)",
    )
    .option("--broker <url>", "own agents on this machine for the broker there, such as wss://patchbay.example.org")
    .option("--token-file <path>", "a file with the key of role runner (or PATCHBAY_TOKEN, PATCHBAY_TOKEN_FILE)")
    .option("--token <key>", "the key itself; other users of this machine can see it")
    .option("--name <name>", "what this machine is called there (default: its host name)")
    .option("--label <name=value...>", "what sessions can ask for", [])
    .option("--claude-bin <path>", "the CLI (default: as for serve)")
    .option("--agent-env <NAME=value...>", "variables for every agent here (or PATCHBAY_AGENT_ENV_<NAME>)")
    .option("--local", "be the runner of a data directory; for internal use: the server starts it by itself")
    .option(
      "--stop",
      "stop the runner of a server's data directory (--data-dir, or as for serve), and its agents, in order",
    )
    .option("--data-dir <path>", `homes of the agents (default: ${DATA_DIR}; with --local: the data directory)`)
    .option("--workspace-root <path>", "where the tenants' folders are (default: `workspaces` in the data directory)")
    .addOption(milliseconds("--away-ms", "how long agents go on without a server before they are stopped", 600_000))
    .addOption(milliseconds("--idle-ms", "with --local: how long it stays without agents and without a server", 5000))
    .addOption(new Option("--ready-fd <number>", "where to say that it is ready").argParser(wholeNumber).hideHelp())
    .action(async (flags: RunnerFlags) => {
      if (flags.stop === true) return stopRunner(flags.dataDir);
      if (flags.broker !== undefined && flags.local !== true) return dialIn(flags.broker, flags);
      if (flags.local !== true || flags.dataDir === undefined || flags.workspaceRoot === undefined) {
        throw new BrokerError("config_invalid", "Say --broker <url>, or --local with --data-dir and --workspace-root.");
      }
      const { runLocalRunner } = await import("../agents/runner/local-program.ts");
      await runLocalRunner({
        dataDir: resolve(flags.dataDir),
        workspaceRoot: resolve(flags.workspaceRoot),
        version: VERSION,
        awayMs: flags.awayMs,
        idleMs: flags.idleMs,
        readyFd: flags.readyFd,
      });
    });
}

/** Until SIGTERM or SIGINT; a second one ends it at once. */
async function dialIn(broker: string, flags: RunnerFlags): Promise<void> {
  const { token, claudeBin, agentEnv, ...places } = readRunnerConfiguration(process.env, { ...flags });
  if (token === undefined) {
    const message =
      "No key: name a file with one, --token-file <path>. An admin makes it: patchbay keys create --role runner.";
    throw new BrokerError("config_invalid", message, { details: { name: "token" } });
  }
  const dataDir = resolve(places.dataDir ?? DATA_DIR);
  const stopping = new AbortController();
  const stop = (): void => {
    if (stopping.signal.aborted) process.exit(1);
    stopping.abort();
  };
  process.on("SIGTERM", stop);
  process.on("SIGINT", stop);
  const { runDialledRunner } = await import("../agents/runner/dial-program.ts");
  await runDialledRunner(
    {
      broker,
      token,
      name: flags.name ?? hostname(),
      labels: Object.fromEntries(flags.label.map(labelOf)),
      dataDir,
      workspaceRoot: resolve(places.workspaceRoot ?? join(dataDir, "workspaces")),
      version: VERSION,
      binary: rememberBinary(claudeBin),
      env: agentEnv,
      awayMs: flags.awayMs,
      tell: (line) => console.error(line),
    },
    stopping.signal,
  );
  process.exit(0);
}

function labelOf(text: string): [string, string] {
  const equals = text.indexOf("=");
  if (equals > 0) return [text.slice(0, equals), text.slice(equals + 1)];
  throw new BrokerError("config_invalid", `--label: ${text} is not name=value.`, { details: { name: "label" } });
}

function milliseconds(flag: string, help: string, byDefault: number): Option {
  return new Option(`${flag} <ms>`, help).argParser(wholeNumber).default(byDefault);
}
