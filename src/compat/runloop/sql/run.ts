import { constants, DatabaseSync, type SQLOutputValue, type StatementSync } from "node:sqlite";
import { whyRefused } from "./authorize.ts";
import type { SqlFailure, SqlJob, SqlLimits, SqlResult, SqlStatement, SqlStep, SqlValue } from "./port.ts";

const PAGE_BYTES = 4096;

/** Primary result codes of SQLite that mean: more than is allowed. IOERR is what a write past the file size limit gives. */
const NOMEM = 7;
const IOERR = 10;
const FULL = 13;
const TOOBIG = 18;
const LIMIT_WORDS: ReadonlyMap<number, string> = new Map([
  [NOMEM, "the statement needs more memory than is allowed"],
  [IOERR, "the statement needs more temporary space than is allowed"],
  [FULL, "the database has reached its size limit"],
  [TOOBIG, "a text, blob or row is larger than is allowed"],
]);

interface Guarded {
  readonly database: DatabaseSync;
  /** Runs a statement of our own, which the guard lets pass. */
  own(sql: string): void;
  /** Why the guard refused since it was last asked. */
  refusal(): string | undefined;
}

function openGuarded(file: string, limits: SqlLimits): Guarded {
  const database = new DatabaseSync(file, {
    allowExtension: false,
    defensive: true,
    readBigInts: true,
    returnArrays: true,
    limits: {
      attach: 0,
      compoundSelect: 50,
      exprDepth: 200,
      functionArg: 100,
      length: limits.valueBytes,
      likePatternLength: 1_000,
      sqlLength: limits.statementBytes,
      triggerDepth: 20,
      variableNumber: 1_000,
      vdbeOp: 100_000,
    },
  });
  let refused: string | undefined;
  let ours = false;
  database.exec(`PRAGMA page_size=${PAGE_BYTES}; PRAGMA max_page_count=${Math.floor(limits.databaseBytes / PAGE_BYTES)};
    PRAGMA trusted_schema=OFF; PRAGMA cell_size_check=ON; PRAGMA temp_store=FILE; PRAGMA cache_size=-4096;`);
  database.setAuthorizer((action, first, second) => {
    const why = ours ? undefined : whyRefused(action, first, second);
    refused ??= why;
    return why === undefined ? constants.SQLITE_OK : constants.SQLITE_DENY;
  });
  return {
    database,
    own(sql) {
      ours = true;
      try {
        database.exec(sql);
      } finally {
        ours = false;
      }
    },
    refusal() {
      const why = refused;
      refused = undefined;
      return why;
    },
  };
}

const failed = (message: string): SqlFailure => ({ kind: "failed", message });

function failureOf(error: unknown, refusal: string | undefined): SqlFailure {
  if (refusal !== undefined) return failed(refusal);
  if (!(error instanceof Error)) return failed(String(error));
  const code = "errcode" in error && typeof error.errcode === "number" ? error.errcode & 0xff : undefined;
  const words = code === undefined ? undefined : LIMIT_WORDS.get(code);
  return words === undefined ? failed(error.message) : { kind: "limit", message: words };
}

const hasNoStatement = (error: unknown): boolean =>
  error instanceof Error && "code" in error && error.code === "ERR_INVALID_ARG_VALUE";

/** Compiles exactly one statement: SQLite itself would take the first and say nothing of the rest. @throws Error */
function prepareOne(database: DatabaseSync, sql: string): StatementSync {
  if (sql.includes("\0")) throw new Error("the statement has a NUL character");
  const statement = database.prepare(sql);
  const rest = sql.slice(statement.sourceSQL.length);
  try {
    database.prepare(rest);
  } catch (error) {
    if (hasNoStatement(error)) return statement;
    throw new Error("there is more than one statement; send one, or a batch", { cause: error });
  }
  throw new Error("there is more than one statement; send one, or a batch");
}

/** Whole numbers go in as integers: SQLite would take a JavaScript number for a real, and 1 || 'x' would be '1.0x'. */
function bound(value: SqlValue): null | number | bigint | string {
  if (typeof value === "boolean") return value ? 1n : 0n;
  return typeof value === "number" && Number.isSafeInteger(value) ? BigInt(value) : value;
}

function shown(value: SQLOutputValue): SqlValue {
  if (typeof value === "bigint") {
    const number = Number(value);
    return Number.isSafeInteger(number) ? number : String(value);
  }
  return value instanceof Uint8Array ? Buffer.from(value).toString("base64") : value;
}

/** How many bytes of rows may still be given out, over all statements of a call. */
interface Budget {
  bytes: number;
}

function readRows(statement: StatementSync, params: readonly SqlValue[], limits: SqlLimits, budget: Budget) {
  const rows: SqlValue[][] = [];
  for (const row of statement.iterate(...params.map(bound))) {
    const values = Object.values(row).map(shown);
    const bytes = Buffer.byteLength(JSON.stringify(values));
    if (rows.length >= limits.rows || bytes > budget.bytes) return { rows, cut: true };
    budget.bytes -= bytes;
    rows.push(values);
  }
  return { rows, cut: false };
}

const CHANGES = "select changes(), total_changes()";

function runOne(
  { database }: Guarded,
  { sql, params = [] }: SqlStatement,
  limits: SqlLimits,
  budget: Budget,
): SqlResult {
  const counter = database.prepare(CHANGES);
  const count = (): readonly number[] => Object.values(counter.get() ?? {}).map(Number);
  const startedMs = performance.now();
  const statement = prepareOne(database, sql);
  const columns = statement.columns().map(({ name, type }) => ({ name, type: type ?? "" }));
  const [, before] = count();
  let found: ReturnType<typeof readRows> = { rows: [], cut: false };
  if (columns.length > 0) found = readRows(statement, params, limits, budget);
  else statement.run(...params.map(bound));
  const [changes = 0, after] = count();
  return {
    columns,
    rows: found.rows,
    meta: {
      changes: after === before ? 0 : changes,
      duration_ms: Math.round((performance.now() - startedMs) * 1000) / 1000,
      rows_read_limit_reached: found.cut,
    },
  };
}

/** One step for each statement of a call of which number `at` failed: nothing of it has happened. */
function allFailed(count: number, at: number, failure: SqlFailure): SqlStep[] {
  return Array.from({ length: count }, (_, index) => {
    if (index === at) return { error: failure };
    const fate = index < at ? "rolled back" : "not run";
    return { error: failed(`${fate}: statement ${at + 1} of the batch failed`) };
  });
}

/** Statements that have run in a transaction which is still open; or have failed, and then nothing is open. */
export interface RanStatements {
  /** Commits, and gives what became of each statement. */
  finish(): readonly SqlStep[];
}

/** Runs all statements in one transaction, on the calling thread for as long as they take. Never throws: what failed is in the steps. */
export function runStatements({ file, statements, limits }: SqlJob): RanStatements {
  const steps: SqlStep[] = [];
  let guarded: Guarded | undefined;
  /** What was not committed is rolled back. */
  const fail = (at: number, error: unknown): readonly SqlStep[] => {
    const failure = failureOf(error, guarded?.refusal());
    guarded?.database.close();
    return allFailed(statements.length, at, failure);
  };
  try {
    guarded = openGuarded(file, limits);
    const budget = { bytes: limits.resultBytes };
    guarded.own("BEGIN");
    for (const statement of statements) steps.push({ success: runOne(guarded, statement, limits, budget) });
  } catch (error) {
    const failed = fail(steps.length, error);
    return { finish: () => failed };
  }
  const { database, own } = guarded;
  return {
    finish() {
      try {
        own("COMMIT");
        database.close();
        return steps;
      } catch (error) {
        return fail(statements.length - 1, error);
      }
    },
  };
}
