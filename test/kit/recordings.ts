import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { isJsonObject, type JsonObject } from "../../src/protocol/json.ts";

/** Where the recorded dialogues with the real CLI are. */
export const RECORDINGS = join(import.meta.dirname, "..", "transcripts");

/** One line of a recording. */
export interface Recorded {
  /** Its place in the file, from 0. */
  readonly index: number;
  readonly dir: string;
  readonly message: JsonObject;
  /** The JSON text of the message as recorded. */
  readonly raw: string;
}

/** The files that the folder's README lists. @throws when the folder holds others */
export function listRecordings(): string[] {
  const rows = readFileSync(join(RECORDINGS, "README.md"), "utf8").matchAll(/^\| (\S+\.ndjson) \|/gm);
  const listed = [...rows].map((row) => row[1] ?? "").sort();
  const present = readdirSync(RECORDINGS).filter((name) => name.endsWith(".ndjson"));
  if (present.sort().join() !== listed.join()) throw new Error("test/transcripts does not hold what its README lists");
  return listed;
}

export function readRecording(file: string): Recorded[] {
  const lines = readFileSync(join(RECORDINGS, file), "utf8").split("\n").filter(Boolean);
  return lines.map((line, index) => {
    const { dir, msg } = JSON.parse(line);
    const raw = line.slice(line.indexOf('"msg":') + '"msg":'.length, line.lastIndexOf("}"));
    return { index, dir, message: isJsonObject(msg) ? msg : {}, raw };
  });
}
