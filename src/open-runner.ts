import { createInlineRunner } from "./agents/inline-runner.ts";
import { processLauncher } from "./agents/process.ts";
import { joinLocalRunner } from "./agents/runner/local.ts";
import type { Runner } from "./agents/runner-port.ts";
import type { ResolvedOptions } from "./options.ts";
import type { BrokerError } from "./protocol/problems.ts";
import type { Store } from "./store/port.ts";

/** The owner of this server's agents. */
export interface OpenedRunner {
  readonly runner: Runner;
  /** Agents go on when this server goes. */
  readonly agentsStay: boolean;
}

/** Starts or joins the runner that the options ask for (contract 2, PATCHBAY_RUNNER). @throws BrokerError runner_unavailable */
export async function openRunner(
  { runner, dataDir, workspaceRoot }: ResolvedOptions,
  store: Store,
  binary: () => Promise<{ readonly command: string }>,
  lost: (error: BrokerError) => void,
): Promise<OpenedRunner> {
  if (runner === "inline") {
    const settings = {
      dataDir,
      workspaceRoot,
      binary: async (asked: string | undefined) => (asked === undefined ? binary() : { command: asked }),
    };
    return { runner: createInlineRunner({ launcher: processLauncher, settings }), agentsStay: false };
  }
  const epoch = await nextEpoch(store);
  return { runner: await joinLocalRunner({ dataDir, workspaceRoot, epoch, onLost: lost }), agentsStay: true };
}

/** Higher than that of every server of this data directory before (contract promise 7): what an older one still says counts no more. */
async function nextEpoch(store: Store): Promise<number> {
  const sql = `INSERT INTO meta (key, value) VALUES ('epoch', '1')
    ON CONFLICT (key) DO UPDATE SET value = CAST(CAST(value AS INTEGER) + 1 AS TEXT)`;
  await store.write([{ sql, params: [] }]);
  const [row] = await store.read("SELECT value FROM meta WHERE key = 'epoch'");
  return Number(row?.["value"]);
}
