import { type Seq, seq } from "../protocol/ids.ts";
import { BrokerError } from "../protocol/problems.ts";
import type { Store } from "../store/port.ts";
import { integerOf } from "../store/rows.ts";
import type { LogRow } from "./appender.ts";
import { LOG_DEFAULTS, type LogOptions } from "./options.ts";
import type { Continuation, Logs, OpenedLog } from "./port.ts";
import { deleteEvents, lastUpTo, markRemoved } from "./retention.ts";
import { createSessionLog, type SessionLog } from "./session-log.ts";

/** The logs of a store; it must hold the tables `sessions` and `events`. Whoever opens a session's log is its one writer. */
export function createLogs(store: Store, options: Partial<LogOptions> = {}): Logs {
  const settings: LogOptions = { ...LOG_DEFAULTS, ...options };
  const open = new Map<string, Promise<SessionLog>>();

  async function openLog(sessionId: string, continuation?: Continuation): Promise<OpenedLog> {
    if (open.has(sessionId)) throw new Error(`the log of ${sessionId} is open already, and has one writer`);
    const opening = readRow(store, sessionId).then((row) =>
      createSessionLog(sessionId, row, store, settings, continuation),
    );
    open.set(sessionId, opening);
    try {
      return (await opening).opened;
    } catch (error) {
      open.delete(sessionId);
      throw error;
    }
  }

  async function close(sessionId: string): Promise<void> {
    const opening = open.get(sessionId);
    if (opening === undefined) return;
    await (await opening).close();
    // Another close may have been first, and the log opened again since.
    if (open.get(sessionId) === opening) open.delete(sessionId);
  }

  async function trim(sessionId: string, upTo: Seq): Promise<void> {
    const session = await open.get(sessionId);
    const shown = session === undefined ? upTo : seq(Math.min(upTo, session.opened.log.head()));
    const last = await lastUpTo(store, sessionId, shown);
    if (last === undefined) return;
    // First the mark, then what readers go by, then the rows: at no time does a reader miss some and not know.
    await markRemoved(store, sessionId, last);
    (await open.get(sessionId))?.remove(last);
    await deleteEvents(store, sessionId, last);
  }

  return {
    open: openLog,
    close,
    trim,
    async purge(sessionId) {
      await close(sessionId);
      await deleteEvents(store, sessionId, seq(Number.MAX_SAFE_INTEGER));
    },
  };
}

async function readRow(store: Store, sessionId: string): Promise<LogRow> {
  const [row] = await store.read("SELECT head, reserved, removed FROM sessions WHERE id = ?", [sessionId]);
  if (row === undefined)
    throw new BrokerError("not_found", "There is no such session. List the sessions to find the right id.");
  return {
    head: seq(integerOf(row, "head")),
    reserved: seq(integerOf(row, "reserved")),
    removed: seq(integerOf(row, "removed")),
  };
}
