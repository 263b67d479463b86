import { type Connection, openConnection, WRITER_PRAGMAS } from "./connection.ts";
import { explain, holdDataDir } from "./data-dir.ts";
import { createGroupCommit, storeFailed } from "./group-commit.ts";
import { migrate } from "./migrations.ts";
import type { Store } from "./port.ts";
import { startWriter, type Writer } from "./writer.ts";

export interface StoreOptions {
  /** Made if absent (mode 0700); held by this store alone until it is closed. */
  readonly dataDir: string;
}

/** A store on SQLite. */
export interface SqliteStore extends Store {
  /** Transactions committed since it was opened. */
  commits(): number;
}

/**
 * Opens the database of a data directory, brought to the newest schema. Writes go to a thread of their own in group commits; reads run
 * here, on a second connection that sees committed data only.
 * @throws BrokerError data_dir_unusable, data_dir_in_use, data_dir_newer
 */
export async function openStore({ dataDir }: StoreOptions): Promise<SqliteStore> {
  const held = holdDataDir(dataDir);
  try {
    const reader = openReader(held.database);
    try {
      return joined(reader, await startWriter(held.database), held.release);
    } catch (error) {
      reader.close();
      throw error;
    }
  } catch (error) {
    held.release();
    throw explain(dataDir, error);
  }
}

/** Brings the schema up to date, then writes no more. */
function openReader(path: string): Connection {
  const connection = openConnection(path);
  try {
    connection.exec(WRITER_PRAGMAS);
    migrate(connection);
    connection.exec("PRAGMA query_only = ON");
    return connection;
  } catch (error) {
    connection.close();
    throw error;
  }
}

function joined(reader: Connection, writer: Writer, release: () => void): SqliteStore {
  const group = createGroupCommit(writer.commit);
  let closed: Promise<void> | undefined;

  async function close(): Promise<void> {
    await group.close();
    // The writer is last: it moves what is left in the -wal file into the database.
    reader.close();
    await writer.close();
    release();
  }

  return {
    write: group.write,
    async read(sql, params = []) {
      try {
        return reader.all(sql, params);
      } catch (cause) {
        throw storeFailed(cause);
      }
    },
    close: () => (closed ??= close()),
    commits: group.commits,
  };
}
