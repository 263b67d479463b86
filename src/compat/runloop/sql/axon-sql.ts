import { createHash } from "node:crypto";
import { rm } from "node:fs/promises";
import { join } from "node:path";
import { BrokerError } from "../../../protocol/problems.ts";
import { createSqlHosts } from "./hosts.ts";
import {
  SQL_LIMITS,
  type SqlFailure,
  type SqlLimits,
  type SqlResult,
  type SqlStatement,
  type SqlStep,
} from "./port.ts";

/** One private SQLite database for each axon. The calls of one axon run one after the other, in the order they came. */
export interface AxonSql {
  /** Runs exactly one statement. @throws BrokerError sql_failed, sql_limit, rate_limited, draining */
  query(tenant: string, axonId: string, statement: SqlStatement): Promise<SqlResult>;
  /**
   * Runs all statements in one transaction: all of them, or none. One step for each, in order; where one failed, all are errors.
   * @throws BrokerError sql_limit, rate_limited, draining
   */
  batch(tenant: string, axonId: string, statements: readonly SqlStatement[]): Promise<readonly SqlStep[]>;
  /** Deletes the axon's database, after the calls that came before. */
  remove(tenant: string, axonId: string): Promise<void>;
  /** Stops what runs; nothing of it has happened. */
  close(): void;
}

export interface AxonSqlParts {
  /** Where the databases are; made when there is the first. */
  readonly folder: string;
  readonly limits?: Partial<SqlLimits>;
}

const hashed = (text: string): string => createHash("sha256").update(text).digest("hex").slice(0, 40);

const WHAT_NEXT = { failed: "Correct the statement.", limit: "Ask for less at a time." };
const problem = ({ kind, message }: SqlFailure): BrokerError =>
  new BrokerError(kind === "limit" ? "sql_limit" : "sql_failed", `${message}. ${WHAT_NEXT[kind]}`);

export function createAxonSql({ folder, limits: given }: AxonSqlParts): AxonSql {
  const limits: SqlLimits = { ...SQL_LIMITS, ...given };
  const hosts = createSqlHosts(folder, limits);
  // Names of others would be file names: too long, or not told apart by every file system.
  const fileOf = (tenant: string, axonId: string): string => join(folder, hashed(tenant), `${hashed(axonId)}.db`);

  async function run(tenant: string, axonId: string, statements: readonly SqlStatement[]) {
    const file = fileOf(tenant, axonId);
    if (hosts.pending(file) >= limits.waitingPerAxon) {
      throw new BrokerError("rate_limited", "Too many statements wait for this axon's database. Send fewer at a time.");
    }
    return hosts.run(tenant, file, statements);
  }
  return {
    async query(tenant, axonId, statement) {
      const [step] = await run(tenant, axonId, [statement]);
      if (step === undefined) throw new BrokerError("internal", "The statement had no result. Try again.");
      if ("error" in step) throw problem(step.error);
      return step.success;
    },
    async batch(tenant, axonId, statements) {
      if (statements.length > limits.statementsPerBatch) {
        throw new BrokerError(
          "sql_limit",
          `A batch has at most ${limits.statementsPerBatch} statements. Send several.`,
        );
      }
      return statements.length === 0 ? [] : run(tenant, axonId, statements);
    },
    async remove(tenant, axonId) {
      const file = fileOf(tenant, axonId);
      await hosts.quiet(file);
      await Promise.all(["", "-journal"].map((end) => rm(file + end, { force: true })));
    },
    close: hosts.close,
  };
}
