import { resolve } from "node:path";
import { stopLocalRunner } from "../agents/runner/running.ts";
import { readConfiguration } from "../configuration.ts";
import { resolveOptions } from "../options.ts";
import { BrokerError } from "../protocol/problems.ts";

/** `patchbay runner --stop`. @throws BrokerError runner_unavailable, when it does not end */
export async function stopRunner(given: string | undefined): Promise<void> {
  const dataDir =
    given === undefined ? resolveOptions(readConfiguration(process.env, {}).broker).dataDir : resolve(given);
  const stopped = await stopLocalRunner(dataDir);
  if (stopped === undefined) {
    console.log(`No runner runs for ${dataDir}.`);
    return;
  }
  const { pid, agents, isGone } = stopped;
  if (!isGone) {
    const message = `The runner (pid ${pid}) does not end. Look at ${dataDir}/runner/log; SIGKILL ends it, and the next one ends its agents.`;
    throw new BrokerError("runner_unavailable", message);
  }
  console.log(`Stopped the runner (pid ${pid}); agents ended: ${agents}.`);
}
