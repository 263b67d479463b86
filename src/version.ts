import { readFileSync } from "node:fs";
import { isJsonObject, stringField } from "./protocol/json.ts";

function readVersion(): string {
  const parsed: unknown = JSON.parse(readFileSync(new URL("../package.json", import.meta.url), "utf8"));
  return isJsonObject(parsed) ? (stringField(parsed, "version") ?? "unknown") : "unknown";
}

/** The package's own version. */
export const VERSION: string = readVersion();
