import { nanoid } from "nanoid";
import { BrokerError } from "../protocol/problems.ts";
import type { SecretView } from "../protocol/secrets.ts";
import type { Row, Store } from "../store/port.ts";
import { integerOf, textOf } from "../store/rows.ts";
import type { Sealer } from "../store/seal.ts";
import { type AuditActor, type AuditEntry, auditWrite } from "./audit.ts";

/** So many secrets a tenant may have. */
const MOST_PER_TENANT = 1_000;

export interface NewSecret {
  readonly name: string;
  readonly value: string;
}

/** Named values of a tenant, encrypted in the store. Who may call is for the caller to have asked. */
export interface Secrets {
  /** Makes one; the same name with the same value again is no error. @throws BrokerError bad_request (name taken), rate_limited (too many) */
  create(tenant: string, secret: NewSecret, actor: AuditActor): Promise<SecretView>;
  /** @throws BrokerError not_found */
  update(tenant: string, secret: NewSecret, actor: AuditActor): Promise<SecretView>;
  /** @throws BrokerError not_found */
  remove(tenant: string, name: string, actor: AuditActor): Promise<SecretView>;
  /** @throws BrokerError not_found */
  read(tenant: string, name: string): Promise<SecretView>;
  /** The first so many by name, and how many there are. */
  list(tenant: string, limit: number): Promise<{ readonly secrets: readonly SecretView[]; readonly total: number }>;
  /** The value, for an agent that is about to be started: never for a client. @throws BrokerError not_found */
  valueOf(tenant: string, name: string): Promise<string>;
}

export interface SecretsParts {
  readonly store: Store;
  readonly sealer: Sealer;
  /** Milliseconds since the epoch. */
  readonly now?: () => number;
}

interface StoredSecret {
  readonly view: SecretView;
  readonly sealed: string;
}

const aboutSecret = (tenant: string, name: string): readonly string[] => ["secrets", tenant, name];

function decode(row: Row): StoredSecret {
  const view = {
    id: textOf(row, "id"),
    name: textOf(row, "name"),
    created_at_ms: integerOf(row, "created_at_ms"),
    updated_at_ms: integerOf(row, "updated_at_ms"),
  };
  return { view, sealed: textOf(row, "sealed") };
}

/** The audit record says which secret, never what is in it. */
function note(tenant: string, { id, name }: SecretView, actor: AuditActor, subtype: string, nowMs: number) {
  const outcome = { create: "created", update: "changed", remove: "removed" }[subtype] ?? subtype;
  const entry: AuditEntry = { kind: "secret", tenant, actor, subtype, decision: { secret_id: id, name }, outcome };
  return auditWrite(entry, nowMs);
}

/** Seals anew, with the newest key, what older ones have sealed. @throws BrokerError config_invalid (a key is missing) */
async function sealAnew(store: Store, sealer: Sealer): Promise<void> {
  const rows = await store.read("SELECT id, tenant, name, sealed FROM secrets");
  const old = rows.filter((row) => !sealer.isCurrent(textOf(row, "sealed")));
  if (old.length === 0) return;
  const writes = old.map((row) => {
    const about = aboutSecret(textOf(row, "tenant"), textOf(row, "name"));
    const sealed = textOf(row, "sealed");
    return {
      sql: "UPDATE secrets SET sealed = ? WHERE id = ? AND sealed = ?",
      params: [sealer.seal(sealer.open(sealed, about), about), textOf(row, "id"), sealed],
    };
  });
  await store.write(writes);
}

/** Opens the secrets of a store. @throws BrokerError config_invalid (what is there was sealed with a key that was not given) */
export async function createSecrets({ store, sealer, now = Date.now }: SecretsParts): Promise<Secrets> {
  await sealAnew(store, sealer);

  async function find(tenant: string, name: string): Promise<StoredSecret | undefined> {
    const [row] = await store.read("SELECT * FROM secrets WHERE tenant = ? AND name = ?", [tenant, name]);
    return row && decode(row);
  }
  async function need(tenant: string, name: string): Promise<StoredSecret> {
    const found = await find(tenant, name);
    if (found === undefined) throw new BrokerError("not_found", "There is no secret with this name.");
    return found;
  }
  async function refuseFull(tenant: string): Promise<void> {
    const [row] = await store.read("SELECT COUNT(*) AS n FROM secrets WHERE tenant = ?", [tenant]);
    if (row === undefined || integerOf(row, "n") < MOST_PER_TENANT) return;
    throw new BrokerError("rate_limited", `A tenant has at most ${MOST_PER_TENANT} secrets. Remove one first.`);
  }
  return {
    async create(tenant, { name, value }, actor) {
      await refuseFull(tenant);
      const nowMs = now();
      const view: SecretView = { id: `sec_${nanoid()}`, name, created_at_ms: nowMs, updated_at_ms: nowMs };
      const about = aboutSecret(tenant, name);
      const insert = {
        sql: "INSERT INTO secrets (id, tenant, name, sealed, created_at_ms, updated_at_ms) VALUES (?, ?, ?, ?, ?, ?)",
        params: [view.id, tenant, name, sealer.seal(value, about), nowMs, nowMs],
      };
      // The index lets one of several at once win; nothing of the others is written, their audit rows included.
      const lost = await store
        .write([insert, note(tenant, view, actor, "create", nowMs)])
        .catch((error: unknown) => error);
      if (lost === undefined) return view;
      const there = await find(tenant, name);
      if (there === undefined) throw lost;
      // A client that lost the answer asks again.
      if (sealer.open(there.sealed, about) === value) return there.view;
      throw new BrokerError(
        "bad_request",
        "name: a secret of this name is there already. Update it, or choose another.",
        {
          details: { field: "name" },
        },
      );
    },
    async update(tenant, { name, value }, actor) {
      const { view } = await need(tenant, name);
      const nowMs = now();
      await store.write([
        {
          sql: "UPDATE secrets SET sealed = ?, updated_at_ms = ? WHERE tenant = ? AND name = ?",
          params: [sealer.seal(value, aboutSecret(tenant, name)), nowMs, tenant, name],
        },
        note(tenant, view, actor, "update", nowMs),
      ]);
      return { ...view, updated_at_ms: nowMs };
    },
    async remove(tenant, name, actor) {
      const { view } = await need(tenant, name);
      await store.write([
        { sql: "DELETE FROM secrets WHERE tenant = ? AND name = ?", params: [tenant, name] },
        note(tenant, view, actor, "remove", now()),
      ]);
      return view;
    },
    read: async (tenant, name) => (await need(tenant, name)).view,
    async list(tenant, limit) {
      const rows = await store.read("SELECT * FROM secrets WHERE tenant = ? ORDER BY name", [tenant]);
      return { secrets: rows.slice(0, limit).map((row) => decode(row).view), total: rows.length };
    },
    valueOf: async (tenant, name) => sealer.open((await need(tenant, name)).sealed, aboutSecret(tenant, name)),
  };
}
