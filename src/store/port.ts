/** A value that SQLite and PostgreSQL both store as it is. */
export type SqlValue = string | number | bigint | null | Uint8Array;

/** One statement of a transaction. SQL that both engines take; `?` marks parameters. */
export interface Write {
  readonly sql: string;
  readonly params: readonly SqlValue[];
}

export type Row = Readonly<Record<string, SqlValue>>;

/** The database: durable writes in call order, and reads of what is committed. It does not know what its tables mean to others. */
export interface Store {
  /**
   * The writes are one transaction, or part of a larger one with other calls of the same tick (group commit). Resolves once they are
   * durable; calls become durable in call order. Rejects, with nothing of this call applied, when a statement fails.
   */
  write(writes: readonly Write[]): Promise<void>;
  /** Rows of committed data. */
  read(sql: string, params?: readonly SqlValue[]): Promise<Row[]>;
  /** Waits for what was written, then lets go of the files. */
  close(): Promise<void>;
}
