import { chmodSync, existsSync, rmSync, statSync, truncateSync } from "node:fs";
import { DatabaseSync } from "node:sqlite";
import { sweepLedger } from "./ledger.ts";
import { makePrivateFolder, type RunnerFolder, readRunnerInfo, removeSocket } from "./runner-folder.ts";
import { sweepHomes } from "./sweep-homes.ts";

/** Makes a runner's folder its own. The kernel lets go of it when the process ends, however it ends. undefined when another runner holds it. */
export function holdFolder({ folder, spool, agents, lock }: RunnerFolder): DatabaseSync | undefined {
  for (const path of [folder, spool, agents]) makePrivateFolder(path);
  const database = new DatabaseSync(lock, { timeout: 0 });
  try {
    chmodSync(lock, 0o600);
    database.exec("PRAGMA locking_mode = EXCLUSIVE; BEGIN EXCLUSIVE");
    return database;
  } catch (error) {
    database.close();
    if (error instanceof Error && /locked|busy/i.test(error.message)) return undefined;
    throw error;
  }
}

/** What its starters append to for ever is begun anew beyond this. */
const LOG_LIMIT_BYTES = 1024 * 1024;

/** What a runner that was killed left behind: agents, files of output, its socket; and a log that has grown too long. */
export async function sweepLeftovers(folder: RunnerFolder, dataDir: string): Promise<void> {
  await sweepLedger(folder.agents);
  await sweepHomes(dataDir);
  rmSync(folder.spool, { recursive: true, force: true });
  makePrivateFolder(folder.spool);
  const info = readRunnerInfo(folder);
  if (info !== undefined) removeSocket(info.socket);
  rmSync(folder.info, { force: true });
  if (existsSync(folder.log) && statSync(folder.log).size > LOG_LIMIT_BYTES) truncateSync(folder.log);
}
