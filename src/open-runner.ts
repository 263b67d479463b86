import { randomUUID } from "node:crypto";
import { createInlineRunner } from "./agents/inline-runner.ts";
import { processLauncher } from "./agents/process.ts";
import { createDialledRunners, type DialledRunners } from "./agents/runner/dialled-runners.ts";
import { joinLocalRunner } from "./agents/runner/local.ts";
import type { Runner } from "./agents/runner-port.ts";
import type { ResolvedOptions } from "./options.ts";
import type { BrokerError } from "./protocol/problems.ts";
import { readRunners, saveRunner } from "./sessions/runner-rows.ts";
import type { Store } from "./store/port.ts";

/** The owners of this server's agents. */
export interface OpenedRunners {
  /** The server's own; undefined when only those that dial in are to own agents. */
  readonly local: Runner | undefined;
  readonly dialled: DialledRunners;
  /** The agents of the server's own runner go on when this server goes. */
  readonly agentsStay: boolean;
  close(): Promise<void>;
}

export interface RunnerReports {
  /** Another server owns the local runner now. */
  readonly lost: (error: BrokerError) => void;
  /** A runner that dialled in will not have this server. */
  readonly refused: (error: BrokerError) => void;
  readonly failed: (error: unknown) => void;
}

/** Starts or joins the runner that the options ask for (contract 2, PATCHBAY_RUNNER). @throws BrokerError runner_unavailable */
export async function openRunners(
  options: ResolvedOptions,
  store: Store,
  binary: () => Promise<{ readonly command: string }>,
  reports: RunnerReports,
): Promise<OpenedRunners> {
  const epoch = await nextEpoch(store);
  const local = await openLocal(options, epoch, binary, reports.lost);
  const dialled = createDialledRunners({
    epoch,
    broker: await ownName(store),
    known: await readRunners(store),
    save: (runner) => void store.write([saveRunner(runner)]).catch(reports.failed),
    report: reports.refused,
  });
  return {
    local,
    dialled,
    agentsStay: options.runner === "auto",
    async close() {
      await dialled.close();
      await local?.close();
    },
  };
}

async function openLocal(
  { runner, dataDir, workspaceRoot }: ResolvedOptions,
  epoch: number,
  binary: () => Promise<{ readonly command: string }>,
  lost: (error: BrokerError) => void,
): Promise<Runner | undefined> {
  if (runner === "none") return undefined;
  if (runner === "auto") return joinLocalRunner({ dataDir, workspaceRoot, epoch, onLost: lost });
  const settings = {
    dataDir,
    workspaceRoot,
    binary: async (asked: string | undefined) => (asked === undefined ? binary() : { command: asked }),
  };
  return createInlineRunner({ launcher: processLauncher, settings });
}

/** Higher than that of every server of this data directory before (contract promise 7): what an older one still says counts no more. */
async function nextEpoch(store: Store): Promise<number> {
  const sql = `INSERT INTO meta (key, value) VALUES ('epoch', '1')
    ON CONFLICT (key) DO UPDATE SET value = CAST(CAST(value AS INTEGER) + 1 AS TEXT)`;
  await store.write([{ sql, params: [] }]);
  const [row] = await store.read("SELECT value FROM meta WHERE key = 'epoch'");
  return Number(row?.["value"]);
}

/** Which data directory it is whose epochs these are: a runner elsewhere may come from another one. */
async function ownName(store: Store): Promise<string> {
  const sql = "INSERT INTO meta (key, value) VALUES ('broker', ?) ON CONFLICT (key) DO NOTHING";
  await store.write([{ sql, params: [randomUUID()] }]);
  const [row] = await store.read("SELECT value FROM meta WHERE key = 'broker'");
  return String(row?.["value"]);
}
