import type { RegisteredRunner } from "../agents/runner/dialled-runners.ts";
import { isJsonObject } from "../protocol/json.ts";
import type { Row, Store, Write } from "../store/port.ts";
import { integerOf, textOf } from "../store/rows.ts";

/** The runners that have ever been linked to a server of this store. */
export async function readRunners(store: Store): Promise<readonly RegisteredRunner[]> {
  return (await store.read("SELECT * FROM runners ORDER BY tenant, name")).map(decode);
}

function decode(row: Row): RegisteredRunner {
  const labels: unknown = JSON.parse(textOf(row, "labels"));
  const about: unknown = JSON.parse(textOf(row, "about"));
  const texts = Object.entries(isJsonObject(labels) ? labels : {}).filter(
    (entry): entry is [string, string] => typeof entry[1] === "string",
  );
  return {
    tenant: textOf(row, "tenant"),
    name: textOf(row, "name"),
    instance: textOf(row, "instance"),
    labels: Object.fromEntries(texts),
    about: isJsonObject(about) ? about : {},
    seenAtMs: integerOf(row, "seen_at_ms"),
  };
}

export function saveRunner({ tenant, name, instance, labels, about, seenAtMs }: RegisteredRunner): Write {
  return {
    sql: `INSERT OR REPLACE INTO runners (tenant, name, instance, labels, about, seen_at_ms) VALUES (?, ?, ?, ?, ?, ?)`,
    params: [tenant, name, instance, JSON.stringify(labels), JSON.stringify(about), seenAtMs],
  };
}

/** The name of the runner that a session lives on; undefined for the server's own, and where none was chosen yet. */
export async function readPlacement(store: Store, session: string): Promise<string | undefined> {
  const [row] = await store.read("SELECT runner FROM session_runner WHERE session = ? AND current = 1", [session]);
  return row && textOf(row, "runner");
}

/** It lives there from now on. Where it lived before, its folders stay until it is purged. */
export function savePlacement(session: string, tenant: string, runner: string): Write[] {
  return [
    { sql: "UPDATE session_runner SET current = 0 WHERE session = ?", params: [session] },
    {
      sql: "INSERT OR REPLACE INTO session_runner (session, tenant, runner) VALUES (?, ?, ?)",
      params: [session, tenant, runner],
    },
  ];
}

/** The session is gone; its folders are not yet. Part of the transaction that removes it. */
export const markPurged = (session: string): Write => ({
  sql: "UPDATE session_runner SET purged = 1 WHERE session = ?",
  params: [session],
});

export const deletePlacement = (session: string, runner: string): Write => ({
  sql: "DELETE FROM session_runner WHERE session = ? AND runner = ?",
  params: [session, runner],
});

/** Where a session has folders. */
export async function readPlacements(store: Store, session: string): Promise<readonly string[]> {
  const rows = await store.read("SELECT runner FROM session_runner WHERE session = ?", [session]);
  return rows.map((row) => textOf(row, "runner"));
}

/** Purged sessions whose folders that runner still has. */
export async function readPurged(store: Store, tenant: string, runner: string): Promise<readonly string[]> {
  const sql = "SELECT session FROM session_runner WHERE tenant = ? AND runner = ? AND purged = 1";
  return (await store.read(sql, [tenant, runner])).map((row) => textOf(row, "session"));
}
