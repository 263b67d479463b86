import { parseSessionPolicy, parseTenantPolicy } from "../../protocol/policy.schema.ts";
import type { Policy } from "../../protocol/policy.ts";
import { BrokerError } from "../../protocol/problems.ts";
import type { SqlValue, Store } from "../../store/port.ts";
import { type AuditActor, auditWrite } from "../audit.ts";

/** The policy documents of this server: read at once, written through to the store. */
export interface Policies {
  /** undefined = it has none. */
  forTenant(tenant: string): Policy | undefined;
  forSession(id: string): Policy | undefined;
  /**
   * Checks and stores a document, on record with who did it. When it resolves it is durable and in force for the next question.
   * @throws BrokerError bad_request, not_found
   */
  setTenant(tenant: string, policy: unknown, by: AuditActor): Promise<Policy>;
  /** @throws BrokerError bad_request, not_found */
  setSession(id: string, policy: unknown, by: AuditActor): Promise<Policy>;
  /** Reads the document of a session that was made with one: it began as a copy of another. Await it before the session can be driven. */
  loadSession(id: string): Promise<void>;
  /** Lets go of the document of a session that was purged. */
  forgetSession(id: string): void;
}

/** In place of a stored document that cannot be read: nothing is allowed until an admin stores a new one. */
const UNREADABLE: Policy = {
  rules: [
    {
      id: "unreadable-policy",
      effect: "deny",
      message: "The stored policy cannot be read, so everything is denied. An admin has to store it anew.",
    },
  ],
  default: "deny",
};

function decode(stored: SqlValue | undefined, parse: (value: unknown) => Policy): Policy {
  try {
    return parse(JSON.parse(String(stored)));
  } catch {
    return UNREADABLE;
  }
}

/** One table with a `policy` column. */
interface Shelf {
  get(id: string): Policy | undefined;
  set(id: string, value: unknown, by: AuditActor): Promise<Policy>;
  load(id: string): Promise<void>;
  forget(id: string): void;
}

const SHELVES = {
  tenants: { column: "id", parse: parseTenantPolicy, missing: "There is no tenant of this name." },
  sessions: { column: "tenant", parse: parseSessionPolicy, missing: "There is no session with this id." },
} as const;

async function openShelf(store: Store, table: keyof typeof SHELVES, now: () => number): Promise<Shelf> {
  const { column, parse, missing } = SHELVES[table];
  const rows = await store.read(`SELECT id, policy FROM ${table} WHERE policy IS NOT NULL`);
  const held = new Map(rows.map((row) => [String(row["id"]), decode(row["policy"], parse)]));
  return {
    get: (id) => held.get(id),
    async set(id, value, actor) {
      const policy = parse(value);
      const [row] = await store.read(`SELECT ${column} AS tenant FROM ${table} WHERE id = ?`, [id]);
      if (row === undefined) throw new BrokerError("not_found", missing);
      const entry = {
        kind: "policy",
        subtype: "set_policy",
        tenant: String(row["tenant"]),
        ...(table === "sessions" && { session_id: id }),
        actor,
        decision: policy,
        outcome: "stored",
      } as const;
      await store.write([
        { sql: `UPDATE ${table} SET policy = ? WHERE id = ?`, params: [JSON.stringify(policy), id] },
        auditWrite(entry, now()),
      ]);
      held.set(id, policy);
      return policy;
    },
    async load(id) {
      const [row] = await store.read(`SELECT policy FROM ${table} WHERE id = ? AND policy IS NOT NULL`, [id]);
      if (row !== undefined) held.set(id, decode(row["policy"], parse));
    },
    forget: (id) => void held.delete(id),
  };
}

/** Opens the policies of a store. A stored document that cannot be read denies everything. */
export async function createPolicies(store: Store, now: () => number = Date.now): Promise<Policies> {
  const tenants = await openShelf(store, "tenants", now);
  const sessions = await openShelf(store, "sessions", now);
  return {
    forTenant: tenants.get,
    forSession: sessions.get,
    setTenant: tenants.set,
    setSession: sessions.set,
    loadSession: sessions.load,
    forgetSession: sessions.forget,
  };
}
