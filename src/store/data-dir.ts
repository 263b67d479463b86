import { closeSync, existsSync, openSync } from "node:fs";
import { join } from "node:path";
import { BrokerError } from "../protocol/problems.ts";
import { openConnection, SQLITE_BUSY, sqliteCode } from "./connection.ts";
import { makeDirectories } from "./make-directories.ts";

/** A data directory that this process holds alone. */
export interface DataDir {
  /** Path of the database file, which exists. */
  readonly database: string;
  release(): void;
}

/**
 * Makes the directory if need be and locks it until `release` or the end of the process, however it ends.
 * @throws BrokerError data_dir_unusable, data_dir_in_use
 */
export function holdDataDir(dataDir: string): DataDir {
  try {
    makeDirectories(dataDir, 0o700);
    const lockFile = join(dataDir, "lock");
    createPrivate(lockFile);
    // An open transaction in a database of its own: the kernel lets go of it at kill -9, and SQLite also refuses a second holder
    // in the same process. The file must never be opened by anything but SQLite: closing it would drop the lock.
    const lock = openConnection(lockFile, { busyTimeoutMs: 0 });
    try {
      lock.exec("BEGIN EXCLUSIVE");
      const database = join(dataDir, "patchbay.db");
      createPrivate(database);
      return { database, release: () => lock.close() };
    } catch (error) {
      lock.close();
      throw error;
    }
  } catch (error) {
    throw explain(dataDir, error);
  }
}

/** Turns an error of opening into what the operator can do about it; a BrokerError stays as it is. */
export function explain(dataDir: string, error: unknown): unknown {
  if (error instanceof BrokerError) return error;
  if (sqliteCode(error) === SQLITE_BUSY) {
    return new BrokerError(
      "data_dir_in_use",
      `Another server holds the data directory ${dataDir}. Stop it, or choose another PATCHBAY_DATA_DIR.`,
      { cause: error },
    );
  }
  const reason = error instanceof Error ? error.message : String(error);
  return new BrokerError(
    "data_dir_unusable",
    `The data directory ${dataDir} cannot be used: ${reason}. Make it a directory that this user can write, or choose another PATCHBAY_DATA_DIR.`,
    { cause: error },
  );
}

/** SQLite would create it readable by everybody; its -wal and -shm files take over the mode. */
function createPrivate(path: string): void {
  if (!existsSync(path)) closeSync(openSync(path, "wx", 0o600));
}
