import { DatabaseSync, type StatementSync } from "node:sqlite";
import type { Row, SqlValue } from "./port.ts";

/** Prepared statements kept for each connection; the texts come from code, so this many are never reached by plain use. */
const MAX_STATEMENTS = 200;
/** How long a statement waits for another connection's lock. */
const BUSY_TIMEOUT_MS = 5_000;

/** One SQLite connection. The only file that knows node:sqlite. */
export interface Connection {
  /** Several statements without parameters. */
  exec(sql: string): void;
  run(sql: string, params: readonly SqlValue[]): void;
  all(sql: string, params: readonly SqlValue[]): Row[];
  /** False also after SQLite itself has rolled back, as it does when the disk is full. */
  inTransaction(): boolean;
  close(): void;
}

export interface ConnectionOptions {
  readonly busyTimeoutMs?: number;
}

/** @throws Error of node:sqlite, with `errcode` (see sqliteCode) */
export function openConnection(path: string, options: ConnectionOptions = {}): Connection {
  const database = new DatabaseSync(path, { timeout: options.busyTimeoutMs ?? BUSY_TIMEOUT_MS });
  const statements = new Map<string, StatementSync>();

  const prepared = (sql: string): StatementSync => {
    const known = statements.get(sql);
    if (known !== undefined) return known;
    if (statements.size >= MAX_STATEMENTS) statements.clear();
    const statement = database.prepare(sql);
    statements.set(sql, statement);
    return statement;
  };

  return {
    exec: (sql) => database.exec(sql),
    run(sql, params) {
      prepared(sql).run(...params);
    },
    all: (sql, params) => prepared(sql).all(...params),
    inTransaction: () => database.isTransaction,
    close() {
      statements.clear();
      database.close();
    },
  };
}

/** Settings of the one connection that writes: durable at commit even over a power cut, readers never wait. */
export const WRITER_PRAGMAS = `
  PRAGMA journal_mode = WAL;
  PRAGMA synchronous = FULL;
  PRAGMA temp_store = MEMORY;
  PRAGMA journal_size_limit = 67108864;
`;

/** SQLite's primary result code of a node:sqlite error; undefined for any other error. */
export function sqliteCode(error: unknown): number | undefined {
  if (!(error instanceof Error) || !("errcode" in error) || typeof error.errcode !== "number") return undefined;
  return error.errcode & 0xff;
}

export const SQLITE_BUSY = 5;
