import type { ForkSource, RunnerFiles, SessionPlace, Transcript } from "../agents/runner-port.ts";
import type { Store, Write } from "../store/port.ts";
import { bytesOf, integerOf, textOf } from "../store/rows.ts";
import { parseEntry, sidecarOf, splitLines, splitMirror, transcriptFileOf } from "./transcript-lines.ts";

/** What one read of a stored transcript fetches at most: reads hold up the server's thread. */
const ROWS_PER_READ = 500;
const BYTES_PER_READ = 4 * 1024 * 1024;

const LINES = ".jsonl";
const NEWLINE = Buffer.from("\n");

/** The oldest CLI that is known to print its transcript when it is asked to. */
const MIRROR_SINCE = [2, 1, 197];

/**
 * The writes that keep one `transcript_mirror` line beside the log; they go into the transaction of the events of its step. Empty for a line
 * whose file is none of a conversation: the path is the agent's word, and no more than a few plain names are taken from it.
 */
export function mirrorWrites(sessionId: string, line: Uint8Array): Write[] {
  const mirrored = splitMirror(line);
  const place = mirrored && transcriptFileOf(mirrored.filePath);
  if (mirrored === undefined || place === undefined) return [];
  const { cliSessionId, file } = place;
  return mirrored.entries.flatMap(({ bytes, value }) => {
    const sidecar = sidecarOf(file, value);
    if (sidecar === undefined) return [insertEntry(sessionId, cliSessionId, file, bytes, value["uuid"])];
    return [
      { sql: `DELETE FROM transcript_entries WHERE ${OF_FILE}`, params: [sessionId, cliSessionId, sidecar.file] },
      insertEntry(sessionId, cliSessionId, sidecar.file, sidecar.bytes),
    ];
  });
}

/** The writes that put a copied transcript in place of what is stored under that id: for a CLI that does not print its own. */
export function copyWrites(sessionId: string, cliSessionId: string, transcript: Transcript): Write[] {
  if (!transcript.has(`${cliSessionId}${LINES}`)) return [];
  const inserts = [...transcript].flatMap(([path, bytes]) => {
    const file = fileOf(cliSessionId, path);
    if (file === undefined) return [];
    if (!file.endsWith(LINES)) return [insertEntry(sessionId, cliSessionId, file, bytes)];
    return splitLines(bytes).map((line) =>
      insertEntry(sessionId, cliSessionId, file, line, parseEntry(line)?.["uuid"]),
    );
  });
  const sql = "DELETE FROM transcript_entries WHERE session = ? AND cli_session = ?";
  return [{ sql, params: [sessionId, cliSessionId] }, ...inserts];
}

/**
 * The writes that add what a transcript has and the store has not: the last lines of a process whose output was lost with its runner, or
 * all of a conversation that nobody kept so far.
 */
export async function catchUpWrites(
  store: Store,
  sessionId: string,
  cliSessionId: string,
  transcript: Transcript,
): Promise<Write[]> {
  const where = "session = ? AND cli_session = ?";
  const main = `${cliSessionId}${LINES}`;
  const [first] = await store.read(`SELECT id FROM transcript_entries WHERE ${where} AND file = ? LIMIT 1`, [
    sessionId,
    cliSessionId,
    main,
  ]);
  if (first === undefined) return copyWrites(sessionId, cliSessionId, transcript);
  const sql = `SELECT file, uuid FROM transcript_entries WHERE ${where} AND uuid IS NOT NULL`;
  const known = new Set((await store.read(sql, [sessionId, cliSessionId])).map((row) => `${row.file}/${row.uuid}`));
  return [...transcript].flatMap(([path, bytes]) => {
    const file = fileOf(cliSessionId, path);
    if (file === undefined || !file.endsWith(LINES)) return [];
    return splitLines(bytes).flatMap((line) => {
      const uuid = parseEntry(line)?.["uuid"];
      const isNew = typeof uuid === "string" && !known.has(`${file}/${uuid}`);
      return isNew ? [insertEntry(sessionId, cliSessionId, file, line, uuid)] : [];
    });
  });
}

/** The files of a stored conversation; undefined when there is none of that id. */
export async function loadTranscript(
  store: Store,
  sessionId: string,
  cliSessionId: string,
): Promise<Transcript | undefined> {
  const files = new Map<string, Uint8Array[]>();
  for (let after = 0; ; ) {
    const rows = await readEntries(store, sessionId, cliSessionId, after);
    const last = rows.at(-1);
    if (last === undefined) break;
    for (const row of rows) {
      const file = textOf(row, "file");
      const parts = files.get(file) ?? [];
      parts.push(bytesOf(row, "entry"));
      if (file.endsWith(LINES)) parts.push(NEWLINE);
      files.set(file, parts);
    }
    after = integerOf(last, "id");
  }
  if (!files.has(`${cliSessionId}${LINES}`)) return undefined;
  return new Map([...files].map(([file, parts]) => [file, Buffer.concat(parts)]));
}

/**
 * Makes sure that a session's CLI finds the conversation that it is to go on with, or to begin as a copy of: from the store, where its home
 * does not hold it. Called before each start; returns the `fork` of its StartRequest.
 */
export async function restoreTranscript(
  store: Store,
  files: RunnerFiles,
  place: SessionPlace,
  wanted: { readonly cliSessionId: string; readonly fork?: ForkSource | undefined },
): Promise<ForkSource | undefined> {
  const isThere = async (id: string): Promise<boolean> => {
    if (await files.hasTranscript(place, id)) return true;
    const transcript = await loadTranscript(store, place.sessionId, id);
    if (transcript !== undefined) await files.writeTranscript(place, id, transcript);
    return transcript !== undefined;
  };
  if (await isThere(wanted.cliSessionId)) return undefined;
  const { fork } = wanted;
  return fork !== undefined && (await isThere(fork.cliSessionId)) ? fork : undefined;
}

/**
 * The uuids of the user messages that a conversation has taken in, so of those that a dead agent had read (test/sessions/transcripts-cli
 * says what was measured). A message that was folded into a running turn counts; one that only waited in the CLI's own queue does not.
 */
export function messageUuids(transcript: Transcript): ReadonlySet<string> {
  const uuids = new Set<string>();
  for (const [path, bytes] of transcript) {
    if (path.includes("/")) continue;
    for (const line of splitLines(bytes)) {
      const entry = parseEntry(line);
      const uuid = entry?.["type"] === "user" ? entry["uuid"] : foldedUuid(entry?.["attachment"]);
      if (typeof uuid === "string") uuids.add(uuid);
    }
  }
  return uuids;
}

/** Whether a CLI of this version prints its transcript when it is asked to (`--session-mirror`). */
export function canMirror(version: string | null | undefined): boolean {
  const numbers = /^(\d+)\.(\d+)\.(\d+)/
    .exec(version ?? "")
    ?.slice(1)
    .map(Number);
  if (numbers === undefined) return false;
  const differences = MIRROR_SINCE.map((number, index) => (numbers[index] ?? 0) - number);
  return (differences.find((difference) => difference !== 0) ?? 0) >= 0;
}

const OF_FILE = "session = ? AND cli_session = ? AND file = ?";

function insertEntry(sessionId: string, cliSessionId: string, file: string, entry: Uint8Array, uuid?: unknown): Write {
  return {
    sql: "INSERT OR IGNORE INTO transcript_entries (session, cli_session, file, uuid, entry) VALUES (?, ?, ?, ?, ?)",
    params: [sessionId, cliSessionId, file, typeof uuid === "string" ? uuid : null, entry],
  };
}

/** The path of a file that belongs to that conversation. */
function fileOf(cliSessionId: string, path: string): string | undefined {
  const place = transcriptFileOf(`/projects/-/${path}`);
  return place?.cliSessionId === cliSessionId ? place.file : undefined;
}

function foldedUuid(attachment: unknown): unknown {
  if (typeof attachment !== "object" || attachment === null || !("source_uuid" in attachment)) return undefined;
  return "type" in attachment && attachment.type === "queued_command" ? attachment.source_uuid : undefined;
}

/** Sizes first: a read of many big entries at once would hold up everybody else. */
async function readEntries(store: Store, sessionId: string, cliSessionId: string, after: number) {
  const where = "session = ? AND cli_session = ? AND id > ?";
  const params = [sessionId, cliSessionId, after];
  const sizes = await store.read(
    `SELECT id, length(entry) AS bytes FROM transcript_entries WHERE ${where} ORDER BY id LIMIT ${ROWS_PER_READ}`,
    params,
  );
  let bytes = 0;
  let last = after;
  for (const row of sizes) {
    bytes += integerOf(row, "bytes");
    if (last > after && bytes > BYTES_PER_READ) break;
    last = integerOf(row, "id");
  }
  const sql = `SELECT id, file, entry FROM transcript_entries WHERE ${where} AND id <= ? ORDER BY id`;
  return store.read(sql, [...params, last]);
}
