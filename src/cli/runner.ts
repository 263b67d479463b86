import { resolve } from "node:path";
import { Command, Option } from "commander";
import { BrokerError } from "../protocol/problems.ts";
import { VERSION } from "../version.ts";
import { stopRunner } from "./stop-runner.ts";

interface RunnerFlags {
  readonly local?: true;
  readonly stop?: true;
  readonly dataDir?: string;
  readonly workspaceRoot?: string;
  readonly awayMs: number;
  readonly idleMs: number;
  readonly readyFd?: number;
}

function wholeNumber(value: string): number {
  const number = Number(value);
  if (Number.isSafeInteger(number) && number >= 0) return number;
  throw new BrokerError("config_invalid", `${value} is not a whole number.`);
}

/** `patchbay runner`: the program that owns agents, apart from the server. */
export function runnerCommand(): Command {
  return new Command("runner")
    .description("the program that owns agent processes and outlives the server")
    .option("--local", "be the runner of a data directory; for internal use: the server starts it by itself")
    .option(
      "--stop",
      "stop the runner of a server's data directory (--data-dir, or as for serve), and its agents, in order",
    )
    .option("--data-dir <path>", "with --local: the data directory")
    .option("--workspace-root <path>", "with --local: where the tenants' folders are")
    .addOption(milliseconds("--away-ms", "how long agents go on without a server before they are stopped", 600_000))
    .addOption(milliseconds("--idle-ms", "how long it stays without agents and without a server", 5000))
    .addOption(new Option("--ready-fd <number>", "where to say that it is ready").argParser(wholeNumber).hideHelp())
    .action(async (flags: RunnerFlags) => {
      if (flags.stop === true) return stopRunner(flags.dataDir);
      if (flags.local !== true || flags.dataDir === undefined || flags.workspaceRoot === undefined) {
        throw new BrokerError("config_invalid", "Say --local with --data-dir and --workspace-root.");
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

function milliseconds(flag: string, help: string, byDefault: number): Option {
  return new Option(`${flag} <ms>`, help).argParser(wholeNumber).default(byDefault);
}
