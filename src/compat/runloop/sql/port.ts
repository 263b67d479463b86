/** A value that a statement takes or gives. A blob is given as base64 text, an integer beyond 2^53 as text. */
export type SqlValue = null | boolean | number | string;

export interface SqlStatement {
  readonly sql: string;
  /** For the `?` of the statement, in order. */
  readonly params?: readonly SqlValue[] | undefined;
}

/** The result of one statement, in Runloop's form. */
export interface SqlResult {
  /** `type` as declared; empty for an expression. */
  readonly columns: readonly { readonly name: string; readonly type: string }[];
  /** Values in the order of `columns`. */
  readonly rows: readonly (readonly SqlValue[])[];
  readonly meta: {
    /** Rows that INSERT, UPDATE or DELETE changed. */
    readonly changes: number;
    readonly duration_ms: number;
    /** Whether there were more rows, or bytes, than are given out. */
    readonly rows_read_limit_reached: boolean;
  };
}

/** `limit`: more time, memory or space was needed than is allowed. `failed`: SQLite, or we, refused the statement. */
export interface SqlFailure {
  readonly kind: "failed" | "limit";
  readonly message: string;
}

/** What became of one statement of several. */
export type SqlStep = { readonly success: SqlResult } | { readonly error: SqlFailure };

export interface SqlLimits {
  /** Size of one axon's database. */
  readonly databaseBytes: number;
  /** All statements of a call together. In milliseconds. */
  readonly timeMs: number;
  /** Rows of one statement, and bytes of all rows of a call, that are given out. */
  readonly rows: number;
  readonly resultBytes: number;
  /** Longest text or blob, and longest statement. */
  readonly valueBytes: number;
  readonly statementBytes: number;
  readonly statementsPerBatch: number;
  /** Calls of one axon that may wait for their turn; one more is refused. */
  readonly waitingPerAxon: number;
  /** Calls that run at once, in all and of one tenant. */
  readonly processes: number;
  readonly processesPerTenant: number;
  /** Memory that one call may take, on top of what a process takes at rest; where the system can bound it (Linux). */
  readonly memoryBytes: number;
  /** A process without work is kept for this long. */
  readonly idleMs: number;
}

const MEBIBYTE = 1024 * 1024;

export const SQL_LIMITS: SqlLimits = Object.freeze({
  databaseBytes: 64 * MEBIBYTE,
  timeMs: 5_000,
  rows: 10_000,
  resultBytes: 4 * MEBIBYTE,
  valueBytes: 4 * MEBIBYTE,
  statementBytes: MEBIBYTE,
  statementsPerBatch: 100,
  waitingPerAxon: 64,
  processes: 4,
  processesPerTenant: 2,
  memoryBytes: 256 * MEBIBYTE,
  idleMs: 30_000,
});

/** What one process is asked: all statements in one transaction. */
export interface SqlJob {
  readonly file: string;
  readonly statements: readonly SqlStatement[];
  readonly limits: SqlLimits;
}

/**
 * The words between the server and an SQL process. Statements are run, then the server says whether they are to be committed: so what it
 * stops before that has surely not happened.
 */
export type ToProgram = { readonly kind: "run"; readonly job: SqlJob } | { readonly kind: "finish" };
export type FromProgram =
  | { readonly kind: "ready" }
  | { readonly kind: "ran" }
  | { readonly kind: "finished"; readonly steps: readonly SqlStep[] };
