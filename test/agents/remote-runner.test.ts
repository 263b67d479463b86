import { mkdirSync } from "node:fs";
import { duplexPair } from "node:stream";
import { processLauncher } from "../../src/agents/process.ts";
import { createHost } from "../../src/agents/runner/host.ts";
import { createStreamLink } from "../../src/agents/runner/link.ts";
import { createRemoteRunner } from "../../src/agents/runner/remote-runner.ts";
import { runnerContract } from "./runner-contract.ts";

runnerContract("remote over a pair in memory", async (folder) => {
  const settings = {
    dataDir: `${folder}/data`,
    workspaceRoot: `${folder}/workspaces`,
    binary: async (asked: string | undefined) => ({ command: asked ?? "" }),
  };
  mkdirSync(`${folder}/spool`);
  const host = createHost({ launcher: processLauncher, settings, spoolFolder: `${folder}/spool`, about: {} });
  const runner = createRemoteRunner({
    name: "remote",
    epoch: 1,
    async connect() {
      const [here, there] = duplexPair();
      host.accept(createStreamLink(there));
      return { link: createStreamLink(here) };
    },
  });
  await runner.linked();
  return {
    runner,
    async [Symbol.asyncDispose]() {
      await host.stopAll({ eofMs: 0, termMs: 0 }, 0);
      await runner.close();
      await host.close();
    },
  };
});
