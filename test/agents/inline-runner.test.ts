import { createInlineRunner } from "../../src/agents/inline-runner.ts";
import { processLauncher } from "../../src/agents/process.ts";
import { runnerContract } from "./runner-contract.ts";

runnerContract("inline", async (folder) => {
  const settings = {
    dataDir: `${folder}/data`,
    workspaceRoot: `${folder}/workspaces`,
    binary: async (asked: string | undefined) => ({ command: asked ?? "" }),
  };
  const runner = createInlineRunner({ launcher: processLauncher, settings, closePatience: { eofMs: 0, termMs: 0 } });
  return { runner, [Symbol.asyncDispose]: () => runner.close() };
});
