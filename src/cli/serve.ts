import { Command, Option } from "commander";
import type { Broker } from "../broker.ts";
import { flagOf, readConfiguration, variableOf } from "../configuration.ts";
import { OPTION_HELP, OPTION_NAMES, SECRET_OPTIONS } from "../options.ts";
import { VERSION } from "../version.ts";
import { untilStopped } from "./stop.ts";

/** Adds a flag for every option of contract 2. */
export function withBrokerFlags(command: Command): Command {
  for (const name of OPTION_NAMES) {
    const help = `${OPTION_HELP[name]} (${name === "agentEnv" ? "PATCHBAY_AGENT_ENV_<NAME>" : variableOf(name)})`;
    const option = new Option(`${flagOf(name)} <${name === "agentEnv" ? "NAME=value" : "value"}>`, help);
    command.addOption(
      name === "agentEnv" ? option.argParser((value, before: string[] = []) => [...before, value]) : option,
    );
    if (SECRET_OPTIONS.includes(name))
      command.option(`${flagOf(name)}-file <path>`, `a file that holds it (${variableOf(name)}_FILE)`);
  }
  return command;
}

const JOIN_THEM = "Start it again within 10 minutes to join them; after that their runner stops them in order.";

async function announce(broker: Broker, json: boolean): Promise<void> {
  // With --json, stdout is for programs; what a person needs goes to stderr.
  const tell = json ? console.error : console.log;
  if (json) console.log(JSON.stringify({ url: broker.url, pid: process.pid, version: VERSION }));
  tell(`Patchbay ${VERSION}: ${await broker.consoleUrl()}`);
  if (broker.firstKey !== undefined) tell(`First key (an operator's, shown only now): ${broker.firstKey}`);
}

/** `patchbay serve`: runs until SIGTERM or SIGINT. */
export function serveCommand(): Command {
  const command = new Command("serve")
    .description("run the server; prints a console URL whose ticket lives 15 minutes")
    .option("--json", "print one JSON line {url, pid, version} on stdout when ready");
  return withBrokerFlags(command).action(async (flags: Record<string, unknown>) => {
    // Loaded here, so that the commands that only talk to a server start without one.
    const { createBroker } = await import("../broker.ts");
    const broker = await createBroker(readConfiguration(process.env, flags).broker);
    const stopped = untilStopped();
    await announce(broker, flags["json"] === true);
    await stopped;
    const { agentsLeft } = await broker.close();
    if (agentsLeft > 0) console.error(`Agents that go on without a server: ${agentsLeft}. ${JOIN_THEM}`);
  });
}
