import { z } from "zod";
import { parseWith } from "./commands.schema.ts";

/** Bodies of Runloop's SQL routes. Fields that we do not know are left alone: its clients may be newer than we are. */
const value = z.union([z.null(), z.boolean(), z.number(), z.string()], "must be null, a boolean, a number or a text");
const statement = z.object({ sql: z.string(), params: z.array(value).max(1_000).nullish() });
const batch = z.object({ statements: z.array(statement) });

type Statement = z.infer<typeof statement>;
const plain = ({ sql, params }: Statement) => ({ sql, ...(params && { params }) });

/** POST /v1/axons/{id}/sql/query. @throws BrokerError bad_request */
export const parseSqlQuery = (body: unknown) => plain(parseWith(statement, body ?? {}));
/** POST /v1/axons/{id}/sql/batch. @throws BrokerError bad_request */
export const parseSqlBatch = (body: unknown) => parseWith(batch, body ?? {}).statements.map(plain);
