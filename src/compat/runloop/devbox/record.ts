import { isJsonObject, type JsonObject } from "../../../protocol/json.ts";
import type { DevboxStatus } from "../../../protocol/runloop.schema.ts";
import type { Database } from "../port.ts";

export type ShutdownReason = "api_shutdown" | "keep_alive_timeout" | "idle";

export interface Transition {
  readonly status: DevboxStatus;
  readonly transition_time_ms: number;
  readonly failure_reason?: string;
}

/** What is kept of a devbox: what its creator said of it, and how it came to where it is. No variables and no secrets. */
export interface Devbox {
  readonly id: string;
  readonly tenant: string;
  /** Its axon. */
  readonly session: string;
  readonly created_at_ms: number;
  readonly name: string | null;
  readonly metadata: Readonly<Record<string, string>>;
  readonly launch_parameters: JsonObject;
  readonly transitions: readonly Transition[];
  /** `new`: its agent has never been ready. */
  readonly phase: "new" | "up" | "suspended" | "resuming" | "shutdown";
  readonly shutdown?: { readonly reason: ShutdownReason; readonly at_ms: number };
  readonly on_idle?: "suspend" | "shutdown";
  readonly resumes_on_event: boolean;
  readonly keep_alive_s?: number;
  /** Shut down then, unless kept alive. */
  readonly expires_at_ms?: number;
}

const isDevbox = (value: unknown): value is Devbox => isJsonObject(value) && typeof value["id"] === "string";

function decode(row: Readonly<Record<string, unknown>> | undefined): Devbox | undefined {
  const value: unknown = typeof row?.["record"] === "string" ? JSON.parse(row["record"]) : undefined;
  return isDevbox(value) ? value : undefined;
}

const present = (devbox: Devbox | undefined): devbox is Devbox => devbox !== undefined;

export interface DevboxRows {
  /** `request` is unique: see findByRequest. */
  insert(devbox: Devbox, request: string | undefined): Promise<void>;
  save(devbox: Devbox): Promise<void>;
  remove(id: string): Promise<void>;
  find(id: string): Promise<Devbox | undefined>;
  findByRequest(request: string): Promise<Devbox | undefined>;
  /** Those that are not shut down. */
  open(): Promise<readonly Devbox[]>;
  /** How many devboxes an axon has had. */
  countOf(session: string): Promise<number>;
  /** Newest first. `tenant` undefined = all. */
  list(tenant: string | undefined): Promise<readonly Devbox[]>;
}

/** At most this many of a tenant are looked at for a list. */
const LIST_ROWS = 10_000;

export function createDevboxRows(database: Database): DevboxRows {
  return {
    insert: (devbox, request) =>
      database.write([
        {
          sql: "INSERT INTO devboxes (id, tenant, session, request, created_at_ms, is_open, record) VALUES (?, ?, ?, ?, ?, 1, ?)",
          params: [
            devbox.id,
            devbox.tenant,
            devbox.session,
            request ?? null,
            devbox.created_at_ms,
            JSON.stringify(devbox),
          ],
        },
      ]),
    save: (devbox) =>
      database.write([
        {
          sql: "UPDATE devboxes SET is_open = ?, record = ? WHERE id = ?",
          params: [devbox.shutdown === undefined ? 1 : 0, JSON.stringify(devbox), devbox.id],
        },
      ]),
    remove: (id) => database.write([{ sql: "DELETE FROM devboxes WHERE id = ?", params: [id] }]),
    find: async (id) => decode((await database.read("SELECT record FROM devboxes WHERE id = ?", [id]))[0]),
    findByRequest: async (request) =>
      decode((await database.read("SELECT record FROM devboxes WHERE request = ?", [request]))[0]),
    open: async () =>
      (await database.read("SELECT record FROM devboxes WHERE is_open = 1")).map(decode).filter(present),
    async countOf(session) {
      const [row] = await database.read("SELECT count(*) AS found FROM devboxes WHERE session = ?", [session]);
      return Number(row?.["found"] ?? 0);
    },
    async list(tenant) {
      const where = tenant === undefined ? "" : "WHERE tenant = ?";
      const sql = `SELECT record FROM devboxes ${where} ORDER BY created_at_ms DESC, id DESC LIMIT ${LIST_ROWS}`;
      return (await database.read(sql, tenant === undefined ? [] : [tenant])).map(decode).filter(present);
    },
  };
}
