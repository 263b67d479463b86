import { isJsonObject, type JsonObject } from "../protocol/json.ts";

const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const COMMA = 0x2c;
const NEWLINE = 0x0a;

/** The lines of a file that are not blank, without their ends; the last one may be half a line. */
export function splitLines(bytes: Uint8Array): Uint8Array[] {
  const lines: Uint8Array[] = [];
  for (let start = 0; start < bytes.length; ) {
    const found = bytes.indexOf(NEWLINE, start);
    const end = found === -1 ? bytes.length : found;
    if (end > start) lines.push(bytes.subarray(start, end));
    start = end + 1;
  }
  return lines;
}

/** One entry of a transcript: the bytes that it came as, and a parsed copy. */
export interface Entry {
  readonly bytes: Uint8Array;
  readonly value: JsonObject;
}

/** A `transcript_mirror` line; undefined for anything else. */
export function splitMirror(
  line: Uint8Array,
): { readonly filePath: string; readonly entries: readonly Entry[] } | undefined {
  const value = parseEntry(line);
  if (value?.["type"] !== "transcript_mirror") return undefined;
  const { filePath, entries } = value;
  if (typeof filePath !== "string" || !Array.isArray(entries)) return undefined;
  const slices = entries.length === 0 ? [] : sliceEntries(line);
  // Other counts come of a name that is there twice, which the CLI never writes.
  if (slices.length !== entries.length) return undefined;
  const parsed: readonly unknown[] = entries;
  return {
    filePath,
    entries: slices.flatMap((bytes, index) => {
      const copy = parsed[index];
      return isJsonObject(copy) ? [{ bytes, value: copy }] : [];
    }),
  };
}

/**
 * Which conversation, and which of its files, a path names: `<id>.jsonl` or something in the folder `<id>`. Only plain names pass, so that
 * what is stored can be written below any project's folder later.
 */
export function transcriptFileOf(
  filePath: string,
): { readonly cliSessionId: string; readonly file: string } | undefined {
  // The last one: the data directory may well be below a folder of that name.
  const start = filePath.lastIndexOf(PROJECTS);
  const file = start === -1 ? undefined : /^[^/]+\/(.+)$/s.exec(filePath.slice(start + PROJECTS.length))?.[1];
  const names = file?.split("/") ?? [];
  const cliSessionId = names.length === 1 ? names[0]?.replace(/\.jsonl$/, "") : names[0];
  if (file === undefined || cliSessionId === undefined || !UUID.test(cliSessionId) || file === cliSessionId)
    return undefined;
  return names.length <= 6 && names.every((name) => PLAIN_NAME.test(name)) ? { cliSessionId, file } : undefined;
}

/**
 * The CLI mirrors what it keeps in `<agent>.meta.json` beside a subagent's transcript as an entry that the transcript itself does not have.
 */
export function sidecarOf(
  file: string,
  { type, ...rest }: JsonObject,
): { readonly file: string; readonly bytes: Uint8Array } | undefined {
  if (type !== "agent_metadata" || !file.includes("/")) return undefined;
  return { file: file.replace(/\.jsonl$/, ".meta.json"), bytes: Buffer.from(JSON.stringify(rest)) };
}

/** A line as JSON object. undefined for half a line, the last one of a writer that was killed. */
export function parseEntry(line: Uint8Array): JsonObject | undefined {
  try {
    const value: unknown = JSON.parse(Buffer.from(line.buffer, line.byteOffset, line.byteLength).toString("utf8"));
    return isJsonObject(value) ? value : undefined;
  } catch {
    return undefined;
  }
}

const PROJECTS = "/projects/";
const UUID = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/;
const PLAIN_NAME = /^[A-Za-z0-9_-][A-Za-z0-9._-]{0,199}$/;

/** The elements of the line's own `entries` array, which has some. The line is known to be JSON. */
function sliceEntries(line: Uint8Array): Uint8Array[] {
  const slices: Uint8Array[] = [];
  let depth = 0;
  let key = "";
  let start = -1;
  for (let at = 0; at < line.length; at += 1) {
    const byte = line[at];
    if (byte === QUOTE) {
      const end = endOfString(line, at);
      if (depth === 1) key = Buffer.from(line.subarray(at + 1, end)).toString("utf8");
      at = end;
    } else if (byte === 0x7b || byte === 0x5b) {
      depth += 1;
      if (depth === 2 && key === "entries" && byte === 0x5b) start = at + 1;
    } else if (byte === 0x7d || byte === 0x5d) {
      depth -= 1;
      if (depth === 1 && start !== -1) {
        slices.push(line.subarray(start, at));
        start = -1;
      }
    } else if (byte === COMMA && depth === 2 && start !== -1) {
      slices.push(line.subarray(start, at));
      start = at + 1;
    }
  }
  return slices;
}

function endOfString(line: Uint8Array, start: number): number {
  for (let at = start + 1; ; at += 1) {
    if (line[at] === BACKSLASH) at += 1;
    else if (line[at] === QUOTE || at >= line.length) return at;
  }
}
