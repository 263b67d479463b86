import type { Connection } from "./connection.ts";
import type { Call } from "./group-commit.ts";

/**
 * Runs the calls as one transaction and commits it. Answers the calls (by index) that failed and were left out.
 * @throws Error when nothing was committed
 */
export function applyGroup(connection: Connection, calls: readonly Call[]): ReadonlyMap<number, string> {
  // Failures are rare and savepoints are not free: first all in one go, and only if one fails each in its own.
  if (tryAll(connection, calls)) return new Map();
  return applyEach(connection, calls);
}

function tryAll(connection: Connection, calls: readonly Call[]): boolean {
  connection.run("BEGIN IMMEDIATE", []);
  try {
    for (const call of calls) for (const { sql, params } of call) connection.run(sql, params);
  } catch {
    if (connection.inTransaction()) connection.run("ROLLBACK", []);
    return false;
  }
  commit(connection);
  return true;
}

function applyEach(connection: Connection, calls: readonly Call[]): Map<number, string> {
  const failures = new Map<number, string>();
  connection.run("BEGIN IMMEDIATE", []);
  for (const [index, call] of calls.entries()) {
    connection.run("SAVEPOINT call", []);
    try {
      for (const { sql, params } of call) connection.run(sql, params);
    } catch (error) {
      // A full disk or an I/O error rolls the whole transaction back; going on would commit each statement by itself.
      if (!connection.inTransaction()) throw error;
      connection.run("ROLLBACK TO call", []);
      failures.set(index, error instanceof Error ? error.message : String(error));
    }
    connection.run("RELEASE call", []);
  }
  commit(connection);
  return failures;
}

function commit(connection: Connection): void {
  try {
    connection.run("COMMIT", []);
  } catch (error) {
    if (connection.inTransaction()) connection.run("ROLLBACK", []);
    throw error;
  }
}
