import type { Transcript } from "../agents/runner-port.ts";
import { spliceEnvelope } from "../log/envelope.ts";
import { insertEvent } from "../log/stored.ts";
import { seq, sessionId } from "../protocol/ids.ts";
import { BrokerError } from "../protocol/problems.ts";
import type { NewFork, NewSession } from "../protocol/sessions.schema.ts";
import type { Row, Store, Write } from "../store/port.ts";
import { bytesOf, integerOf, textOf } from "../store/rows.ts";
import type { Origin } from "./creation.ts";
import { readSession, type SessionRow } from "./rows.ts";
import { parseEntry } from "./transcript-lines.ts";
import { catchUpWrites } from "./transcripts.ts";

export interface ForkParts {
  readonly store: Store;
  /** The CLI's own files of a conversation, on its runner's machine; undefined when there are none, or they cannot be reached now. */
  readonly readTranscript: (row: SessionRow, cliSessionId: string) => Promise<Transcript | undefined>;
}

/** Where a conversation is in the store; `last` = the id of the last line to copy of its main file. */
interface Source {
  readonly cliSessionId: string;
  readonly last: number;
}

/** The body of POST …/fork as one of POST /v1/sessions: with the agent's options, and the named folder, of the session that it is of. */
export function forkInput(parent: SessionRow, { at, name, cwd }: NewFork): NewSession {
  const { agent, ownFolder, cwd: parentCwd, onCrash, idleTimeoutS, runner } = parent.spec;
  const folder = cwd ?? (ownFolder ? undefined : parentCwd);
  return {
    agent,
    ...(onCrash !== undefined && { on_crash: onCrash }),
    ...(idleTimeoutS !== undefined && { idle_timeout_s: idleTimeoutS }),
    ...(folder !== undefined && { cwd: folder }),
    ...(runner && { runner }),
    ...(name !== undefined && { name }),
    resume_from: { session_id: parent.id, ...(at !== undefined && { at }) },
  };
}

/**
 * Finds the history that a new session of that tenant is to begin with. The conversation is cut in the store: the CLI's own
 * `--resume-session-at` knows no entry from before a compaction (measured on both versions). Where there is no conversation yet, `fork` names
 * one that has no transcript, and the new session begins empty.
 * @throws BrokerError not_found; bad_request for an `at` that is no message of it
 */
export async function planFork(
  parts: ForkParts,
  { session_id, at }: NonNullable<NewSession["resume_from"]>,
  tenant: string,
  nowMs: number,
): Promise<Origin> {
  const parent = await readSession(parts.store, session_id);
  if (parent?.tenant !== tenant) throw new BrokerError("not_found", "There is no session with this id.");
  const find = (): Promise<Source | undefined> =>
    at === undefined ? wholeSource(parts.store, parent) : sourceUpTo(parts.store, parent.id, at);
  const source = (await find()) ?? ((await keepFiles(parts, parent)) ? await find() : undefined);
  if (source === undefined && at !== undefined) throw unknownEntry();
  return {
    fork: { cliSessionId: source?.cliSessionId ?? parent.snapshot.cliSessionId },
    writes: (id) => [
      ...(source === undefined ? [] : [copyEntries(parent.id, source, id)]),
      takeOver(parent.id, id),
      forkedEvent(id, { session_id: parent.id, ...(at !== undefined && { at }) }, nowMs),
    ],
  };
}

const unknownEntry = (): BrokerError =>
  new BrokerError(
    "bad_request",
    "at: must be the uuid of a user or assistant message that is in the session's conversation; take it from its events.",
    { details: { field: "at" } },
  );

/** The conversations that a session may have: its own, and until its first turn the one that it was forked from. */
function conversationsOf({ snapshot, spec }: SessionRow): string[] {
  return [snapshot.cliSessionId, ...(spec.fork === undefined ? [] : [spec.fork.cliSessionId])];
}

async function wholeSource(store: Store, parent: SessionRow): Promise<Source | undefined> {
  for (const cliSessionId of conversationsOf(parent)) {
    const sql = "SELECT id FROM transcript_entries WHERE session = ? AND cli_session = ? AND file = ? LIMIT 1";
    const [row] = await store.read(sql, [parent.id, cliSessionId, mainFile(cliSessionId)]);
    if (row !== undefined) return { cliSessionId, last: Number.MAX_SAFE_INTEGER };
  }
  return undefined;
}

/** In any conversation of the session: `/clear` has begun another, and what was before can still be named. */
async function sourceUpTo(store: Store, parentId: string, at: string): Promise<Source | undefined> {
  const sql =
    "SELECT id, cli_session, file, entry FROM transcript_entries WHERE session = ? AND uuid = ? ORDER BY id DESC";
  const row = (await store.read(sql, [parentId, at])).find(isMessage);
  return row && { cliSessionId: textOf(row, "cli_session"), last: integerOf(row, "id") };
}

function isMessage(row: Row): boolean {
  const type = parseEntry(bytesOf(row, "entry"))?.["type"];
  return (type === "assistant" || type === "user") && textOf(row, "file") === mainFile(textOf(row, "cli_session"));
}

/** For a conversation that was not mirrored, or not yet. True when something was added to what is stored. */
async function keepFiles({ store, readTranscript }: ForkParts, parent: SessionRow): Promise<boolean> {
  for (const cliSessionId of conversationsOf(parent)) {
    const transcript = await readTranscript(parent, cliSessionId);
    if (transcript === undefined) continue;
    const writes = await catchUpWrites(store, parent.id, cliSessionId, transcript);
    if (writes.length > 0) await store.write(writes);
    return writes.length > 0;
  }
  return false;
}

const mainFile = (cliSessionId: string): string => `${cliSessionId}.jsonl`;

/** Files of subagents come whole. */
function copyEntries(parentId: string, { cliSessionId, last }: Source, id: string): Write {
  return {
    sql: `INSERT INTO transcript_entries (session, cli_session, file, uuid, entry)
      SELECT ?, cli_session, file, uuid, entry FROM transcript_entries
      WHERE session = ? AND cli_session = ? AND (file <> ? OR id <= ?) ORDER BY id`,
    params: [id, parentId, cliSessionId, mainFile(cliSessionId), last],
  };
}

/** A policy that holds for a session holds for what comes of it. */
function takeOver(parentId: string, id: string): Write {
  const sql = "UPDATE sessions SET head = 1, policy = (SELECT policy FROM sessions WHERE id = ?) WHERE id = ?";
  return { sql, params: [parentId, id] };
}

/** The first event of its log: where it comes from. */
function forkedEvent(id: string, payload: { session_id: string; at?: string }, nowMs: number): Write {
  const head = {
    session_id: sessionId(id),
    seq: seq(1),
    event_type: "session.forked",
    origin: "SYSTEM_EVENT",
    source: "broker",
    timestamp_ms: nowMs,
  } as const;
  return insertEvent(id, {
    seq: head.seq,
    eventType: head.event_type,
    preview: false,
    restricted: false,
    envelope: spliceEnvelope(head, Buffer.from(JSON.stringify(payload))),
    encoded: {},
  });
}
