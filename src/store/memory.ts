import { applyGroup } from "./apply.ts";
import { openConnection } from "./connection.ts";
import { createGroupCommit, storeFailed } from "./group-commit.ts";
import { migrate } from "./migrations.ts";
import type { SqliteStore } from "./sqlite.ts";

/** The same store without a file: for tests, and for embedding where nothing has to outlive the process. */
export function openMemoryStore(): SqliteStore {
  const connection = openConnection(":memory:");
  migrate(connection);
  const group = createGroupCommit(async (calls) => applyGroup(connection, calls));
  let closed: Promise<void> | undefined;
  return {
    write: group.write,
    async read(sql, params = []) {
      try {
        return connection.all(sql, params);
      } catch (cause) {
        throw storeFailed(cause);
      }
    },
    close: () => (closed ??= group.close().then(() => connection.close())),
    commits: group.commits,
  };
}
