import { randomBytes } from "node:crypto";
import { closeSync, existsSync, fsyncSync, openSync, readFileSync, renameSync, writeSync } from "node:fs";
import { join } from "node:path";
import { BrokerError } from "../protocol/problems.ts";

/** The name of the file in the data directory. */
const FILE = "secrets.key";

function makeKeyFile(path: string): void {
  const fresh = `${path}.new`;
  const file = openSync(fresh, "w", 0o600);
  try {
    writeSync(file, `${randomBytes(32).toString("base64url")}\n`);
    fsyncSync(file);
  } finally {
    closeSync(file);
  }
  renameSync(fresh, path);
}

/**
 * The keys for a sealer, newest first: those that were given (PATCHBAY_SECRETS_KEY: one, or several with commas between), and the one of
 * the data directory, which is made (mode 0600) if nothing else is there. The directory is held by the caller.
 * @throws BrokerError data_dir_unusable
 */
export function sealingKeys(dataDir: string, given: string | undefined): readonly [string, ...string[]] {
  const path = join(dataDir, FILE);
  const [newest, ...older] = (given ?? "").split(",").filter((key) => key !== "");
  try {
    if (newest === undefined && !existsSync(path)) makeKeyFile(path);
    const kept = existsSync(path) ? [readFileSync(path, "utf8").trim()] : [];
    const all = [...(newest === undefined ? [] : [newest, ...older]), ...kept];
    const [first, ...rest] = all;
    if (first === undefined) throw new Error(`${path} is empty`);
    return [first, ...rest];
  } catch (cause) {
    const reason = cause instanceof Error ? cause.message : String(cause);
    const message = `The key of the secrets cannot be read or made: ${reason}. Make ${path} a file that this user can read, or give PATCHBAY_SECRETS_KEY.`;
    throw new BrokerError("data_dir_unusable", message, { cause });
  }
}
