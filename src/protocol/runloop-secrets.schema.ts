import { z } from "zod";
import { parseWith } from "./commands.schema.ts";
import { SECRET_LIMIT_BYTES } from "./secrets.ts";

/** Bodies and queries of Runloop's secret routes. Fields that we do not know are left alone: its clients may be newer than we are. */
const MOST_LISTED = 5_000;
const name = z
  .string()
  .regex(/^[A-Za-z_][A-Za-z0-9_]{0,199}$/, "must be a name of a variable: letters, digits and _, at most 200");
const value = z
  .string()
  .min(1, "must not be empty")
  .refine((text) => !text.includes("\0"), "must not contain NUL")
  .refine((text) => new TextEncoder().encode(text).length <= SECRET_LIMIT_BYTES, "is longer than 64 KiB");
const list = z.object({
  limit: z
    .string()
    .regex(/^\d{1,6}$/, "must be a whole number")
    .transform(Number)
    .refine((limit) => limit >= 1 && limit <= MOST_LISTED, `must be from 1 to ${MOST_LISTED}`)
    .default(20),
});

/** POST /v1/secrets. @throws BrokerError bad_request */
export const parseNewSecret = (body: unknown) => parseWith(z.object({ name, value }), body ?? {});
/** POST /v1/secrets/{name}. @throws BrokerError bad_request */
export const parseSecretValue = (body: unknown) => parseWith(z.object({ value }), body ?? {});
/** GET /v1/secrets. @throws BrokerError bad_request */
export const parseSecretList = (query: unknown) => parseWith(list, query ?? {});
