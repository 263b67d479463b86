import type { FastifyInstance, FastifyRequest } from "fastify";
import type { Action } from "../../../protocol/roles.ts";
import { parseSqlBatch, parseSqlQuery } from "../../../protocol/runloop-sql.schema.ts";
import type { AxonSql } from "./axon-sql.ts";
import type { SqlStep } from "./port.ts";

export interface AxonSqlRouteParts {
  readonly sql: Pick<AxonSql, "query" | "batch">;
  /** The axon that `:id` of the path names, if the caller may do this to it. @throws BrokerError unauthenticated, forbidden, not_found */
  axonOf(request: FastifyRequest, action: Action): Promise<{ readonly tenant: string; readonly id: string }>;
}

/** A whole batch, with values of its own: larger than what other routes take. In bytes. */
const BODY_LIMIT_BYTES = 8 * 1024 * 1024;

const shown = (step: SqlStep) => ("error" in step ? { error: { message: step.error.message } } : step);

/** POST /v1/axons/{id}/sql/query and …/batch, as Runloop's clients call them. Whoever may drive may write, so both need that. */
export function registerAxonSql(app: FastifyInstance, { sql, axonOf }: AxonSqlRouteParts): void {
  const options = {
    bodyLimit: BODY_LIMIT_BYTES,
    // Before the body is read: who may not call does not get to send it.
    onRequest: async (request: FastifyRequest) => void (await axonOf(request, "drive")),
  };
  app.post("/v1/axons/:id/sql/query", options, async (request) => {
    const { tenant, id } = await axonOf(request, "drive");
    return sql.query(tenant, id, parseSqlQuery(request.body));
  });
  app.post("/v1/axons/:id/sql/batch", options, async (request) => {
    const { tenant, id } = await axonOf(request, "drive");
    const steps = await sql.batch(tenant, id, parseSqlBatch(request.body));
    return { results: steps.map(shown) };
  });
}
