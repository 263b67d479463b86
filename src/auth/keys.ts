import { BrokerError } from "../protocol/problems.ts";
import { ROLES, type Role } from "../protocol/roles.ts";
import type { Row, Store } from "../store/port.ts";
import { type AuditActor, type AuditEntry, auditWrite, SERVER_ACTOR } from "./audit.ts";
import { hashOf, keyIdOf, newKey, sameHash } from "./key-format.ts";
import type { KeyView, NewKey } from "./port.ts";

/** The name of the key that PATCHBAY_ADMIN_KEY gives; a new value replaces the old key. */
const ADMIN_KEY_NAME = "PATCHBAY_ADMIN_KEY";
const FIRST_KEY_NAME = "first operator key";
const SHORTEST_ADMIN_KEY_CHARS = 16;
/** last_used is only written when it is older than this: reading must not cost a write each time. */
const LAST_USED_STEP_MS = 60_000;

/** A key as it is to be stored: its roles checked. */
export type CheckedKey = Omit<NewKey, "roles"> & { readonly roles: readonly Role[] };

interface StoredKey extends KeyView {
  readonly hash: Uint8Array;
}

const isRole = (value: unknown): value is Role => ROLES.some((role) => role === value);
const numberOrNull = (row: Row, column: string): number | null => {
  const value = row[column];
  return value === null || value === undefined ? null : Number(value);
};

function decode(row: Row): StoredKey {
  const roles: unknown = JSON.parse(String(row["roles"]));
  const hash = row["secret_hash"];
  return {
    id: String(row["id"]),
    tenant: String(row["tenant"]),
    name: String(row["name"]),
    roles: Array.isArray(roles) ? roles.filter(isRole) : [],
    session_id: row["session"] === null ? null : String(row["session"]),
    created_at_ms: Number(row["created_at_ms"]),
    expires_at_ms: numberOrNull(row, "expires_at_ms"),
    revoked_at_ms: numberOrNull(row, "revoked_at_ms"),
    last_used_at_ms: numberOrNull(row, "last_used_at_ms"),
    hash: hash instanceof Uint8Array ? hash : new Uint8Array(),
  };
}

const view = ({ hash: _, ...key }: StoredKey): KeyView => key;

/** Keys in the store. */
export interface Keys {
  /** The valid key with this token. @throws BrokerError unauthenticated, expired */
  find(token: string): Promise<KeyView>;
  create(wanted: CheckedKey, actor: AuditActor): Promise<KeyView & { readonly key: string }>;
  /** undefined = of every tenant. */
  list(tenant: string | undefined): Promise<readonly KeyView[]>;
  read(id: string): Promise<KeyView | undefined>;
  /** @throws BrokerError not_found */
  revoke(id: string, actor: AuditActor): Promise<KeyView>;
  /** Makes sure of a first key. Returns it when it was made here. @throws BrokerError config_invalid */
  ensureFirst(adminKey: string | undefined): Promise<string | undefined>;
}

export const isValid = (key: KeyView, nowMs: number): boolean =>
  key.revoked_at_ms === null && (key.expires_at_ms === null || key.expires_at_ms > nowMs);

/** Whether it can do everything, everywhere: there has to be one such key. */
export const isFullOperator = (key: KeyView): boolean => key.roles.includes("operator") && key.session_id === null;

/** Made and revoked keys are in the audit record, in the transaction that makes or revokes them. */
function keyEntry(key: CheckedKey & { readonly id: string }, actor: AuditActor) {
  const { id, tenant, name, roles, sessionId, expiresAtMs } = key;
  return {
    kind: "key",
    tenant,
    actor,
    ...(sessionId !== undefined && { session_id: sessionId }),
    decision: { key_id: id, name, roles, ...(expiresAtMs !== undefined && { expires_at_ms: expiresAtMs }) },
  } as const satisfies Omit<AuditEntry, "outcome">;
}

export function createKeys(store: Store, now: () => number): Keys {
  const read = async (id: string): Promise<StoredKey | undefined> => {
    const [row] = await store.read("SELECT * FROM keys WHERE id = ?", [id]);
    return row && decode(row);
  };
  const list = async (): Promise<readonly StoredKey[]> =>
    (await store.read("SELECT * FROM keys ORDER BY created_at_ms, id")).map(decode);

  function touch(key: KeyView): void {
    if (now() - (key.last_used_at_ms ?? 0) < LAST_USED_STEP_MS) return;
    const update = { sql: "UPDATE keys SET last_used_at_ms = ? WHERE id = ?", params: [now(), key.id] };
    // Nothing depends on it: a store that fails says so to the next one who needs it.
    store.write([update]).catch(() => {});
  }
  async function insert(
    wanted: CheckedKey,
    { id, key }: { id: string; key: string },
    actor: AuditActor,
  ): Promise<KeyView> {
    const createdAtMs = now();
    await store.write([
      {
        sql: "INSERT INTO tenants (id, created_at_ms) VALUES (?, ?) ON CONFLICT (id) DO NOTHING",
        params: [wanted.tenant, createdAtMs],
      },
      {
        sql: `INSERT INTO keys (id, tenant, roles, name, secret_hash, created_at_ms, expires_at_ms, session)
          VALUES (?, ?, ?, ?, ?, ?, ?, ?)
          ON CONFLICT (id) DO UPDATE SET tenant = excluded.tenant, roles = excluded.roles, name = excluded.name,
            secret_hash = excluded.secret_hash, expires_at_ms = NULL, revoked_at_ms = NULL, session = NULL`,
        params: [
          id,
          wanted.tenant,
          JSON.stringify(wanted.roles),
          wanted.name,
          hashOf(key),
          createdAtMs,
          wanted.expiresAtMs ?? null,
          wanted.sessionId ?? null,
        ],
      },
      auditWrite({ ...keyEntry({ ...wanted, id }, actor), subtype: "create", outcome: "created" }, createdAtMs),
    ]);
    const stored = await read(id);
    if (stored === undefined) throw new BrokerError("internal", "The key was not stored.");
    return view(stored);
  }
  async function revoke(id: string, actor: AuditActor): Promise<KeyView> {
    const key = await read(id);
    if (key === undefined) throw new BrokerError("not_found", "There is no key with this id.");
    if (key.revoked_at_ms === null) {
      const { tenant, name, roles, session_id } = key;
      const named = { id, tenant, name, roles, ...(session_id !== null && { sessionId: session_id }) };
      const entry: AuditEntry = { ...keyEntry(named, actor), subtype: "revoke", outcome: "revoked" };
      await store.write([
        { sql: "UPDATE keys SET revoked_at_ms = ? WHERE id = ?", params: [now(), id] },
        auditWrite(entry, now()),
      ]);
    }
    return view((await read(id)) ?? key);
  }
  /** The configured key is the only one of its name: an older value stops working. */
  async function installAdminKey(adminKey: string): Promise<void> {
    if (adminKey.length < SHORTEST_ADMIN_KEY_CHARS) {
      throw new BrokerError(
        "config_invalid",
        `PATCHBAY_ADMIN_KEY: is shorter than ${SHORTEST_ADMIN_KEY_CHARS} characters. Choose a random one.`,
        { details: { name: "PATCHBAY_ADMIN_KEY" } },
      );
    }
    const id = keyIdOf(adminKey);
    const keys = await list();
    const older = keys.filter((key) => key.name === ADMIN_KEY_NAME && key.id !== id && isValid(key, now()));
    for (const key of older) await revoke(key.id, SERVER_ACTOR);
    const stored = keys.find((key) => key.id === id);
    const serves = stored !== undefined && isValid(stored, now()) && isFullOperator(stored);
    if (serves && sameHash(stored.hash, hashOf(adminKey))) return;
    const wanted: CheckedKey = { tenant: "default", name: ADMIN_KEY_NAME, roles: ["operator"] };
    await insert(wanted, { id, key: adminKey }, SERVER_ACTOR);
  }
  return {
    async find(token) {
      const key = await read(keyIdOf(token));
      if (key === undefined || !sameHash(key.hash, hashOf(token))) {
        throw new BrokerError("unauthenticated", "The key is not valid. Check it, or ask for a new one.");
      }
      if (!isValid(key, now()))
        throw new BrokerError("expired", "The key has expired or was revoked. Ask for a new one.");
      touch(key);
      return view(key);
    },
    async create(wanted, actor) {
      const made = newKey();
      return { ...(await insert(wanted, made, actor)), key: made.key };
    },
    list: async (tenant) => (await list()).filter((key) => tenant === undefined || key.tenant === tenant).map(view),
    async read(id) {
      const key = await read(id);
      return key && view(key);
    },
    revoke,
    async ensureFirst(adminKey) {
      if (adminKey !== undefined) return void (await installAdminKey(adminKey));
      if ((await list()).some((key) => isFullOperator(key) && isValid(key, now()))) return undefined;
      const made = newKey();
      await insert({ tenant: "default", name: FIRST_KEY_NAME, roles: ["operator"] }, made, SERVER_ACTOR);
      return made.key;
    },
  };
}
