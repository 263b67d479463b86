import { JSON_DEPTH_LIMIT } from "./limits.ts";
import { BrokerError } from "./problems.ts";

export type JsonObject = Readonly<Record<string, unknown>>;

export function isJsonObject(value: unknown): value is JsonObject {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** A string field of an object, or undefined when it is absent or something else. */
export function stringField(value: unknown, field: string): string | undefined {
  const found = isJsonObject(value) ? value[field] : undefined;
  return typeof found === "string" ? found : undefined;
}

/** Walks without recursion, since hostile depth is what it looks for. @throws BrokerError bad_request */
export function refuseDeepJson(value: unknown, field: string): void {
  let level: unknown[] = [value];
  for (let depth = 0; level.length > 0; depth++) {
    if (depth > JSON_DEPTH_LIMIT) {
      throw new BrokerError("bad_request", `${field} is nested deeper than ${JSON_DEPTH_LIMIT} levels; flatten it.`, {
        details: { field },
      });
    }
    level = level.flatMap((item) => (typeof item === "object" && item !== null ? Object.values(item) : []));
  }
}
