import { joinLocalRunner } from "../../src/agents/runner/local.ts";
import { stopLocalRunner } from "../../src/agents/runner/running.ts";
import { runnerContract } from "./runner-contract.ts";

runnerContract("remote over a unix socket, a program of its own", async (folder) => {
  const runner = await joinLocalRunner({
    dataDir: `${folder}/data`,
    workspaceRoot: `${folder}/workspaces`,
    epoch: 1,
    idleMs: 50,
  });
  return {
    runner,
    async [Symbol.asyncDispose]() {
      await runner.close();
      // What a test did not acknowledge would keep it for minutes.
      await stopLocalRunner(`${folder}/data`);
    },
  };
});
