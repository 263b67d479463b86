import { createHash } from "node:crypto";
import fc from "fast-check";
import { expect, test } from "vitest";
import { AUDIT_TEXT_LIMIT_BYTES, type AuditEntry, auditWrite } from "../../src/auth/audit.ts";
import { type AuditFilter, listAudit } from "../../src/auth/audit-list.ts";
import { createAuth } from "../../src/auth/auth.ts";
import type { Principal } from "../../src/auth/port.ts";
import { openMemoryStore } from "../../src/store/memory.ts";
import { verifies } from "../kit/verifies.ts";

const sha256 = (text: string): string => createHash("sha256").update(text).digest("hex");
const entry = (fields: Partial<AuditEntry> = {}): AuditEntry => ({
  kind: "answer",
  tenant: "acme",
  actor: { id: "k1" },
  outcome: "answered",
  ...fields,
});

interface Fixture extends AsyncDisposable {
  readonly store: ReturnType<typeof openMemoryStore>;
  list(filter?: Partial<AuditFilter>): ReturnType<typeof listAudit>;
}

function open(): Fixture {
  const store = openMemoryStore();
  return {
    store,
    list: (filter = {}) => listAudit(store, { after: 0, limit: 100, ...filter }),
    [Symbol.asyncDispose]: () => store.close(),
  };
}

verifies("AUDIT", "an entry comes back as it was written, with its number and time", async () => {
  await using fixture = open();
  const full = entry({
    session_id: "s1",
    actor: { id: "k1", roles: ["approver"], address: "192.0.2.1", connection_id: "c1", via: "ws", ticket: true },
    request_id: "r1",
    tool_name: "Bash",
    subtype: "can_use_tool",
    shown: '{"command":"rm -rf x\\u0000"}',
    decision: { behavior: "deny", message: "no" },
    seq: 7,
  });
  await fixture.store.write([auditWrite(full, 1_000)]);
  const { entries, next } = await fixture.list();
  const { shown = "" } = full;
  expect(entries).toEqual([
    { ...full, id: 1, at_ms: 1_000, shown_sha256: sha256(shown), shown_bytes: Buffer.byteLength(shown) },
  ]);
  expect(next).toBe(1);
});

verifies("AUDIT", "rows are never changed, removed or replaced", async () => {
  await using fixture = open();
  await fixture.store.write([auditWrite(entry(), 1)]);
  for (const sql of [
    "UPDATE audit SET entry = '{}'",
    "UPDATE audit SET id = 9",
    "DELETE FROM audit",
    "INSERT OR REPLACE INTO audit (id, at_ms, tenant, kind, actor, entry) VALUES (1, 1, 'acme', 'answer', 'k2', '{}')",
    "REPLACE INTO audit (id, at_ms, tenant, kind, actor, entry) VALUES (1, 1, 'acme', 'answer', 'k2', '{}')",
  ]) {
    await expect(fixture.store.write([{ sql, params: [] }])).rejects.toThrow();
  }
  expect((await fixture.list()).entries).toMatchObject([{ id: 1, tenant: "acme", actor: { id: "k1" } }]);
});

verifies("AUDIT", "an entry is there exactly when what it records is", async () => {
  await using fixture = open();
  const broken = { sql: "INSERT INTO tenants (id) VALUES (NULL)", params: [] };
  await expect(fixture.store.write([auditWrite(entry(), 1), broken])).rejects.toThrow();
  expect((await fixture.list()).entries).toEqual([]);
});

verifies("AUDIT", "what was shown is cut at 64 KiB between characters, with its whole length and hash", async () => {
  await using fixture = open();
  const text = fc.tuple(fc.nat({ max: 3 }), fc.constantFrom("a", "é", "€", "𝄞"), fc.integer({ min: -2, max: 2 }));
  await fc.assert(
    fc.asyncProperty(text, async ([lead, character, beyond]) => {
      const count = Math.ceil(AUDIT_TEXT_LIMIT_BYTES / Buffer.byteLength(character)) + beyond;
      const shown = "x".repeat(lead) + character.repeat(count);
      const { next } = await fixture.list({ limit: 200 });
      await fixture.store.write([auditWrite(entry({ shown }), 1)]);
      const [recorded] = (await fixture.list({ after: next })).entries;
      const kept = recorded?.shown ?? "";
      expect(recorded).toMatchObject({ shown_bytes: Buffer.byteLength(shown), shown_sha256: sha256(shown) });
      expect(shown.startsWith(kept)).toBe(true);
      expect(Buffer.byteLength(kept)).toBeLessThanOrEqual(AUDIT_TEXT_LIMIT_BYTES);
      const missing = Math.min(Buffer.byteLength(shown), AUDIT_TEXT_LIMIT_BYTES) - Buffer.byteLength(kept);
      expect(missing).toBeLessThan(4);
    }),
    { numRuns: 40 },
  );
});

test("a decision over 64 KiB is recorded by its beginning and its hash", async () => {
  await using fixture = open();
  const decision = { updatedInput: { content: "y".repeat(200_000) } };
  await fixture.store.write([auditWrite(entry({ decision }), 1)]);
  const json = JSON.stringify(decision);
  expect((await fixture.list()).entries[0]?.decision).toEqual({
    cut: json.slice(0, AUDIT_TEXT_LIMIT_BYTES),
    bytes: json.length,
    sha256: sha256(json),
  });
});

verifies("AUDIT", "the record is read in pages, by tenant, session, kind, actor and time", async () => {
  await using fixture = open();
  const rows: readonly (readonly [Partial<AuditEntry>, number])[] = [
    [{ tenant: "acme", session_id: "s1" }, 10],
    [{ tenant: "other", session_id: "s2" }, 20],
    [{ tenant: "acme", kind: "mode" }, 30],
    [{ tenant: "acme", actor: { id: "k2" } }, 40],
  ];
  await fixture.store.write(rows.map(([fields, atMs]) => auditWrite(entry(fields), atMs)));
  const ids = async (filter: Partial<AuditFilter>) => (await fixture.list(filter)).entries.map(({ id }) => id);
  expect(await ids({ tenant: "acme" })).toEqual([1, 3, 4]);
  expect(await ids({ session_id: "s2" })).toEqual([2]);
  expect(await ids({ kind: "mode" })).toEqual([3]);
  expect(await ids({ actor: "k2" })).toEqual([4]);
  expect(await ids({ since: 20, until: 40 })).toEqual([2, 3]);
  expect(await ids({ tenant: "acme", kind: "answer", since: 11 })).toEqual([4]);
  const first = await fixture.list({ tenant: "acme", limit: 2 });
  expect(first).toMatchObject({ entries: [{ id: 1 }, { id: 3 }], next: 3 });
  expect(await fixture.list({ tenant: "acme", limit: 2, after: first.next })).toMatchObject({ entries: [{ id: 4 }] });
  expect(await fixture.list({ after: 4 })).toEqual({ entries: [], next: 4 });
});

verifies("AUDIT", "keys and tickets are on record: who made or revoked what, without any secret", async () => {
  await using fixture = open();
  const auth = await createAuth({ store: fixture.store, now: () => 5 });
  const root: Principal = { id: "root", tenant: "default", roles: ["operator"] };
  const origin = { address: "192.0.2.9", via: "http" } as const;
  const made = await auth.createKey(root, { tenant: "acme", name: "ci", sessionId: "s1" }, origin);
  const { ticket } = await auth.createTicket(root, { roles: ["viewer"], sessionId: "s1" }, origin);
  const console = await auth.createConsoleTicket();
  await auth.revokeKey(root, made.id, origin);
  await auth.revokeKey(root, made.id, origin);
  const { entries } = await fixture.list();
  const actor = { id: "root", roles: ["operator"], ...origin };
  const key = { key_id: made.id, name: "ci", roles: ["driver", "approver"] };
  expect(entries.slice(1)).toEqual([
    { id: 2, at_ms: 5, kind: "key", tenant: "acme", session_id: "s1", actor, subtype: "create", decision: key, outcome: "created" }, // biome-ignore format: one row each
    { id: 3, at_ms: 5, kind: "ticket", tenant: "default", session_id: "s1", actor, subtype: "create", decision: { key_id: "root", roles: ["viewer"], expires_at_ms: 30_005 }, outcome: "created" }, // biome-ignore format: one row each
    { id: 4, at_ms: 5, kind: "ticket", tenant: "default", actor: { id: "server" }, subtype: "console", decision: { key_id: expect.any(String), roles: ["operator"], expires_at_ms: 900_005 }, outcome: "created" }, // biome-ignore format: one row each
    { id: 5, at_ms: 5, kind: "key", tenant: "acme", session_id: "s1", actor, subtype: "revoke", decision: key, outcome: "revoked" }, // biome-ignore format: one row each
  ]);
  expect(entries[0]).toMatchObject({ kind: "key", actor: { id: "server" }, subtype: "create" });
  const text = JSON.stringify(entries);
  for (const secret of [made.key, ticket, console.ticket, auth.createdKey ?? "?"]) {
    expect(secret.length).toBeGreaterThan(30);
    expect(text).not.toContain(secret.slice(-30));
  }
});
