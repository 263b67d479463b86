import { BrokerError } from "../protocol/problems.ts";
import type { Connection } from "./connection.ts";

/** One step from a schema to the next. A released step is never edited; a change is a new one. */
export interface Migration {
  /** 1, 2, 3 …: the schema's number once the step is done. */
  readonly id: number;
  readonly name: string;
  readonly sql: string;
}

export const MIGRATIONS: readonly Migration[] = [
  {
    id: 1,
    name: "sessions, events, commands, tenants and keys",
    sql: `
      CREATE TABLE sessions (
        id TEXT NOT NULL PRIMARY KEY,
        tenant TEXT NOT NULL,
        name TEXT,
        metadata TEXT NOT NULL DEFAULT '{}',
        state TEXT NOT NULL,
        created_at_ms INTEGER NOT NULL,
        updated_at_ms INTEGER NOT NULL,
        head INTEGER NOT NULL DEFAULT 0,
        reserved INTEGER NOT NULL DEFAULT 0,
        removed INTEGER NOT NULL DEFAULT 0,
        live INTEGER NOT NULL DEFAULT 0,
        spec TEXT NOT NULL DEFAULT '{}',
        snapshot TEXT NOT NULL DEFAULT '{}'
      ) STRICT;
      CREATE INDEX sessions_by_tenant ON sessions (tenant, created_at_ms);

      CREATE TABLE events (
        session TEXT NOT NULL,
        seq INTEGER NOT NULL,
        event_type TEXT NOT NULL,
        restricted INTEGER NOT NULL DEFAULT 0,
        envelope BLOB NOT NULL,
        PRIMARY KEY (session, seq)
      ) STRICT;

      CREATE TABLE commands (
        session TEXT NOT NULL,
        principal TEXT NOT NULL,
        id TEXT NOT NULL,
        hash TEXT NOT NULL,
        seq INTEGER NOT NULL,
        PRIMARY KEY (session, principal, id)
      ) STRICT;

      CREATE TABLE used_ids (
        session TEXT NOT NULL,
        kind TEXT NOT NULL,
        id TEXT NOT NULL,
        seq INTEGER NOT NULL,
        PRIMARY KEY (session, kind, id)
      ) STRICT;

      CREATE TABLE idempotency (
        tenant TEXT NOT NULL,
        principal TEXT NOT NULL,
        key TEXT NOT NULL,
        hash TEXT NOT NULL,
        session TEXT NOT NULL,
        created_at_ms INTEGER NOT NULL,
        PRIMARY KEY (tenant, principal, key)
      ) STRICT;

      CREATE TABLE tenants (
        id TEXT NOT NULL PRIMARY KEY,
        created_at_ms INTEGER NOT NULL
      ) STRICT;

      CREATE TABLE keys (
        id TEXT NOT NULL PRIMARY KEY,
        tenant TEXT NOT NULL,
        roles TEXT NOT NULL,
        name TEXT NOT NULL,
        secret_hash BLOB NOT NULL,
        created_at_ms INTEGER NOT NULL,
        expires_at_ms INTEGER,
        revoked_at_ms INTEGER,
        last_used_at_ms INTEGER
      ) STRICT;
    `,
  },
  {
    id: 2,
    name: "keys for one session, audit record",
    sql: `
      ALTER TABLE keys ADD COLUMN session TEXT;

      CREATE TABLE audit (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        at_ms INTEGER NOT NULL,
        tenant TEXT NOT NULL,
        kind TEXT NOT NULL,
        session TEXT,
        actor TEXT NOT NULL,
        entry TEXT NOT NULL
      ) STRICT;
      CREATE INDEX audit_by_tenant ON audit (tenant, id);
      CREATE INDEX audit_by_session ON audit (session, id) WHERE session IS NOT NULL;

      CREATE TRIGGER audit_never_changes BEFORE UPDATE ON audit
        BEGIN SELECT RAISE(ABORT, 'the audit record is append-only'); END;
      CREATE TRIGGER audit_never_shrinks BEFORE DELETE ON audit
        BEGIN SELECT RAISE(ABORT, 'the audit record is append-only'); END;
      -- INSERT OR REPLACE removes a row without the trigger above.
      CREATE TRIGGER audit_never_repeats BEFORE INSERT ON audit WHEN EXISTS (SELECT 1 FROM audit WHERE id = NEW.id)
        BEGIN SELECT RAISE(ABORT, 'the audit record is append-only'); END;
    `,
  },
  {
    id: 3,
    name: "policies",
    sql: `
      ALTER TABLE tenants ADD COLUMN policy TEXT;
      ALTER TABLE sessions ADD COLUMN policy TEXT;
    `,
  },
  {
    id: 4,
    name: "webhooks and their deliveries",
    sql: `
      CREATE TABLE webhooks (
        id TEXT NOT NULL PRIMARY KEY,
        tenant TEXT NOT NULL,
        url TEXT NOT NULL,
        events TEXT NOT NULL,
        secret TEXT NOT NULL,
        created_at_ms INTEGER NOT NULL,
        disabled_at_ms INTEGER,
        dropped INTEGER NOT NULL DEFAULT 0
      ) STRICT;

      CREATE TABLE webhook_deliveries (
        webhook TEXT NOT NULL,
        place INTEGER NOT NULL,
        event_id TEXT NOT NULL,
        event_type TEXT NOT NULL,
        session TEXT NOT NULL,
        request_id TEXT,
        body TEXT NOT NULL,
        state TEXT NOT NULL,
        attempts INTEGER NOT NULL DEFAULT 0,
        created_at_ms INTEGER NOT NULL,
        next_at_ms INTEGER NOT NULL,
        done_at_ms INTEGER,
        status INTEGER,
        reason TEXT,
        PRIMARY KEY (webhook, place)
      ) STRICT;
      CREATE INDEX webhook_deliveries_waiting ON webhook_deliveries (webhook, place) WHERE state = 'pending';
    `,
  },
  {
    id: 5,
    name: "lines of the runner, initialize answers, the agent's own transcripts",
    sql: `
      -- The number of the runner's line that the durable events reach.
      ALTER TABLE sessions ADD COLUMN mark INTEGER NOT NULL DEFAULT 0;

      CREATE TABLE session_initialized (
        session TEXT NOT NULL PRIMARY KEY,
        answer TEXT NOT NULL
      ) STRICT;

      -- The CLI's own files of its conversations: a row for each line (each file that is not .jsonl: one row), id is the order.
      CREATE TABLE transcript_entries (
        id INTEGER PRIMARY KEY,
        session TEXT NOT NULL,
        cli_session TEXT NOT NULL,
        file TEXT NOT NULL,
        uuid TEXT,
        entry BLOB NOT NULL
      ) STRICT;
      CREATE INDEX transcript_by_order ON transcript_entries (session, cli_session, id, file);
      CREATE UNIQUE INDEX transcript_entry_once ON transcript_entries (session, uuid, file) WHERE uuid IS NOT NULL;
    `,
  },
  {
    id: 6,
    name: "runners that dial in, and the sessions that live on them",
    sql: `
      CREATE TABLE runners (
        tenant TEXT NOT NULL,
        name TEXT NOT NULL,
        instance TEXT NOT NULL,
        labels TEXT NOT NULL,
        about TEXT NOT NULL,
        seen_at_ms INTEGER NOT NULL,
        PRIMARY KEY (tenant, name)
      ) STRICT;

      -- Every runner that a session has folders on; current = 1: it lives there. purged = 1: the session is gone, and its folders are to be
      -- removed when the runner is back.
      CREATE TABLE session_runner (
        session TEXT NOT NULL,
        tenant TEXT NOT NULL,
        runner TEXT NOT NULL,
        current INTEGER NOT NULL DEFAULT 1,
        purged INTEGER NOT NULL DEFAULT 0,
        PRIMARY KEY (session, runner)
      ) STRICT;
      CREATE INDEX session_runner_by_name ON session_runner (tenant, runner);
    `,
  },
  {
    id: 7,
    name: "secrets, encrypted; the signing secrets of webhooks too",
    sql: `
      CREATE TABLE secrets (
        id TEXT NOT NULL PRIMARY KEY,
        tenant TEXT NOT NULL,
        name TEXT NOT NULL,
        sealed TEXT NOT NULL,
        created_at_ms INTEGER NOT NULL,
        updated_at_ms INTEGER NOT NULL
      ) STRICT;
      CREATE UNIQUE INDEX secrets_by_name ON secrets (tenant, name);

      -- Takes the place of secret, which is empty once the server has sealed it.
      ALTER TABLE webhooks ADD COLUMN sealed TEXT;
    `,
  },
  {
    id: 8,
    name: "devboxes of Runloop's API",
    sql: `
      CREATE TABLE devboxes (
        id TEXT NOT NULL PRIMARY KEY,
        tenant TEXT NOT NULL,
        session TEXT NOT NULL,
        -- Tenant, principal and x-request-id of the call that made it.
        request TEXT UNIQUE,
        created_at_ms INTEGER NOT NULL,
        is_open INTEGER NOT NULL,
        record TEXT NOT NULL
      ) STRICT;
      CREATE INDEX devboxes_by_tenant ON devboxes (tenant, created_at_ms);
      CREATE INDEX devboxes_by_session ON devboxes (session);
    `,
  },
];

/** Brings a database up to the newest schema, one transaction a step. @throws BrokerError data_dir_newer */
export function migrate(connection: Connection, migrations: readonly Migration[] = MIGRATIONS): void {
  connection.exec("CREATE TABLE IF NOT EXISTS meta (key TEXT NOT NULL PRIMARY KEY, value TEXT NOT NULL) STRICT");
  const found = schemaOf(connection);
  const newest = migrations.at(-1)?.id ?? 0;
  if (found > newest) {
    throw new BrokerError(
      "data_dir_newer",
      `The data directory has schema ${found}; this version of Patchbay knows up to ${newest}. Start the newer version again, or choose another PATCHBAY_DATA_DIR.`,
    );
  }
  for (const step of migrations.filter(({ id }) => id > found)) {
    connection.exec("BEGIN IMMEDIATE");
    try {
      connection.exec(step.sql);
      connection.run(
        "INSERT INTO meta (key, value) VALUES ('schema', ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value",
        [String(step.id)],
      );
      connection.exec("COMMIT");
    } catch (error) {
      if (connection.inTransaction()) connection.exec("ROLLBACK");
      throw new Error(`migration ${step.id} (${step.name}) failed`, { cause: error });
    }
  }
}

function schemaOf(connection: Connection): number {
  const value = connection.all("SELECT value FROM meta WHERE key = 'schema'", [])[0]?.["value"];
  return value === undefined ? 0 : Number(value);
}
