import { readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { isJsonObject } from "../../protocol/json.ts";
import { type ProcessIdentity, sweep } from "../sweep.ts";

/** Which agents a runner has, on disk: after its crash the next one ends what is left of them. */
export interface Ledger {
  add(process: ProcessIdentity): void;
  remove(process: ProcessIdentity): void;
}

export function createLedger(folder: string): Ledger {
  const fileOf = ({ pid }: ProcessIdentity): string => join(folder, String(pid));
  return {
    add: (process) => writeFileSync(fileOf(process), JSON.stringify(process), { mode: 0o600 }),
    remove: (process) => rmSync(fileOf(process), { force: true }),
  };
}

/** Ends what a crashed runner left running. Resolves when it is gone. */
export async function sweepLedger(folder: string): Promise<void> {
  const files = readdirSync(folder).map((name) => join(folder, name));
  await Promise.all(
    files.map(async (file) => {
      const process = readIdentity(file);
      if (process !== undefined) await sweep(process);
      rmSync(file, { force: true });
    }),
  );
}

/** A file that was being written when the machine stopped may be empty; its process is gone with the machine. */
function readIdentity(file: string): ProcessIdentity | undefined {
  try {
    const json: unknown = JSON.parse(readFileSync(file, "utf8"));
    if (!isJsonObject(json)) return undefined;
    const { pid, startTime } = json;
    return typeof pid === "number" && typeof startTime === "string" ? { pid, startTime } : undefined;
  } catch {
    return undefined;
  }
}
