import { isJsonObject } from "../../protocol/json.ts";

const REDACTED = "[redacted]";

/** Whose account it is, and what servers are given to know the agent by. All values below such a field are replaced. */
const PRIVATE_FIELDS = new Set([
  "account",
  "oauthAccount",
  "accountUuid",
  "email",
  "emailAddress",
  "organization",
  "organizationName",
  "organizationUuid",
  "headers",
  "env",
]);

function replaced(value: unknown, isPrivate: boolean): unknown {
  if (Array.isArray(value)) return value.map((item) => replaced(item, isPrivate));
  if (!isJsonObject(value)) return isPrivate && value !== null && typeof value !== "boolean" ? REDACTED : value;
  const fields = Object.entries(value).map(([name, item]) => [
    name,
    replaced(item, isPrivate || PRIVATE_FIELDS.has(name)),
  ]);
  return Object.fromEntries(fields);
}

/** A line with account facts and credentials replaced by "[redacted]". One that is too deep to look through is replaced as a whole. */
export function redact(payload: Uint8Array): Uint8Array {
  try {
    const value: unknown = JSON.parse(Buffer.from(payload).toString("utf8"));
    return Buffer.from(JSON.stringify(replaced(value, false)));
  } catch {
    return Buffer.from(JSON.stringify(REDACTED));
  }
}
