import type { FastifyRequest } from "fastify";
import { ID_LIMIT_CHARS } from "../protocol/limits.ts";
import { BrokerError } from "../protocol/problems.ts";

/** The Idempotency-Key header, where there is one. @throws BrokerError bad_request */
export function idempotencyOf(request: FastifyRequest): { readonly idempotencyKey?: string } {
  const key = request.headers["idempotency-key"];
  if (key === undefined) return {};
  if (typeof key === "string" && key.length >= 1 && key.length <= ID_LIMIT_CHARS) return { idempotencyKey: key };
  throw new BrokerError("bad_request", `Idempotency-Key: must be 1 to ${ID_LIMIT_CHARS} characters.`, {
    details: { field: "Idempotency-Key" },
  });
}
