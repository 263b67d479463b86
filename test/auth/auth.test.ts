import { expect, test } from "vitest";
import { createAuth } from "../../src/auth/auth.ts";
import type { Auth, Principal } from "../../src/auth/port.ts";
import { BrokerError } from "../../src/protocol/problems.ts";
import { ROLES } from "../../src/protocol/roles.ts";
import { openMemoryStore } from "../../src/store/memory.ts";
import { verifies } from "../kit/verifies.ts";

const ADDRESS = "192.0.2.1";
const ADMIN_KEY = "pb_admin_0123456789abcdefghij";
/** An operator, as far as making keys goes. */
const ROOT: Principal = { id: "root", tenant: "default", roles: ["operator"] };

interface Fixture extends AsyncDisposable {
  readonly store: ReturnType<typeof openMemoryStore>;
  readonly auth: Auth & { readonly createdKey?: string };
  /** Milliseconds by which the clock is moved on. */
  advance(ms: number): void;
  reopen(adminKey?: string): Promise<Auth & { readonly createdKey?: string }>;
}

async function open(adminKey?: string): Promise<Fixture> {
  const store = openMemoryStore();
  let nowMs = 1_700_000_000_000;
  const reopen = (key?: string) => createAuth({ store, now: () => nowMs, ...(key !== undefined && { adminKey: key }) });
  return {
    store,
    auth: await reopen(adminKey),
    advance: (ms) => {
      nowMs += ms;
    },
    reopen,
    [Symbol.asyncDispose]: () => store.close(),
  };
}

async function codeOf(work: Promise<unknown>): Promise<string> {
  try {
    await work;
    return "none";
  } catch (error) {
    return error instanceof BrokerError ? error.code : `not a BrokerError: ${String(error)}`;
  }
}

verifies("KEYS", "the first start makes an operator key, tells it once, and keeps only its hash", async () => {
  await using fixture = await open();
  const key = fixture.auth.createdKey ?? "";
  expect(key).toMatch(/^pb_[0-9a-z]{12}_[A-Za-z0-9_-]{43}$/);
  expect(await fixture.auth.withKey(key, ADDRESS)).toMatchObject({ tenant: "default", roles: ["operator"] });
  expect((await fixture.reopen()).createdKey).toBeUndefined();
  const rows = await fixture.store.read("SELECT * FROM keys");
  const secret = key.split("_").slice(2).join("_");
  const stored = rows
    .flatMap((row) => Object.values(row))
    .map((value) => (value instanceof Uint8Array ? Buffer.from(value).toString("latin1") : String(value)));
  expect(stored.some((value) => value.includes(secret))).toBe(false);
});

verifies("KEYS", "PATCHBAY_ADMIN_KEY is the operator's key, and a new value replaces the old", async () => {
  await using fixture = await open(ADMIN_KEY);
  expect(fixture.auth.createdKey).toBeUndefined();
  expect((await fixture.auth.withKey(ADMIN_KEY, ADDRESS)).roles).toEqual(["operator"]);
  const next = "any-long-random-text-of-mine";
  const auth = await fixture.reopen(next);
  expect((await auth.withKey(next, ADDRESS)).roles).toEqual(["operator"]);
  expect(await codeOf(auth.withKey(ADMIN_KEY, ADDRESS))).toBe("expired");
  expect(await codeOf(fixture.reopen("short"))).toBe("config_invalid");
});

verifies("KEYS", "a wrong secret, a wrong id, an expired and a revoked key do not pass", async () => {
  await using fixture = await open(ADMIN_KEY);
  const { auth } = fixture;
  expect(await codeOf(auth.withKey(`${ADMIN_KEY}x`, ADDRESS))).toBe("unauthenticated");
  expect(await codeOf(auth.withKey("pb_nobody_0123456789abcdefghij", ADDRESS))).toBe("unauthenticated");
  expect(await codeOf(auth.withKey("", ADDRESS))).toBe("unauthenticated");
  const short = await auth.createKey(ROOT, {
    tenant: "a",
    name: "short",
    roles: ["viewer"],
    expiresAtMs: 1_700_000_001_000,
  });
  expect(await auth.withKey(short.key, ADDRESS)).toMatchObject({
    tenant: "a",
    roles: ["viewer"],
    expiresAtMs: 1_700_000_001_000,
  });
  fixture.advance(1_000);
  expect(await codeOf(auth.withKey(short.key, ADDRESS))).toBe("expired");
  const gone = await auth.createKey(ROOT, { tenant: "a", name: "gone", roles: ["viewer"] });
  const revoked: string[] = [];
  auth.onRevoked((id) => revoked.push(id));
  await auth.revokeKey(ROOT, gone.id);
  expect(revoked).toEqual([gone.id]);
  expect(await codeOf(auth.withKey(gone.key, ADDRESS))).toBe("expired");
  expect(await codeOf(auth.revokeKey(ROOT, "nobody"))).toBe("not_found");
});

verifies("ROLES", "every role can be given; a new key has driver and approver unless told otherwise", async () => {
  await using fixture = await open(ADMIN_KEY);
  const make = (roles?: readonly string[]) =>
    fixture.auth.createKey(ROOT, { tenant: "default", name: "", ...(roles !== undefined && { roles }) });
  for (const role of ROLES) {
    const { key } = await make([role]);
    expect((await fixture.auth.withKey(key, ADDRESS)).roles).toEqual([role]);
  }
  expect((await make()).roles).toEqual(["driver", "approver"]);
  expect((await make(["viewer", "viewer"])).roles).toEqual(["viewer"]);
  expect(await codeOf(make(["boss"]))).toBe("bad_request");
  expect(await codeOf(make([]))).toBe("bad_request");
});

verifies("ROLES", "nobody grants, or revokes, above himself; an admin's keys are his tenant's", async () => {
  await using fixture = await open(ADMIN_KEY);
  const { auth } = fixture;
  const admin: Principal = { id: "a", tenant: "acme", roles: ["admin"] };
  const make = (maker: Principal, roles: readonly string[], tenant: string) =>
    codeOf(auth.createKey(maker, { tenant, name: "", roles }));
  for (const role of ["viewer", "approver", "driver", "admin"]) expect(await make(admin, [role], "acme")).toBe("none");
  expect(await make(admin, ["operator"], "acme")).toBe("forbidden");
  expect(await make(admin, ["viewer"], "other")).toBe("forbidden");
  expect(await make(ROOT, ["operator"], "Not A Tenant")).toBe("bad_request");
  expect((await auth.listKeys(admin)).map((key) => key.tenant)).toEqual(["acme", "acme", "acme", "acme"]);
  expect((await auth.listKeys(ROOT)).map((key) => key.tenant)).toContain("default");
  const [above, foreign] = [
    await auth.createKey(ROOT, { tenant: "acme", name: "", roles: ["operator"] }),
    await auth.createKey(ROOT, { tenant: "other", name: "", roles: ["viewer"] }),
  ];
  expect(await codeOf(auth.revokeKey(admin, above.id))).toBe("forbidden");
  expect(await codeOf(auth.revokeKey(admin, foreign.id))).toBe("not_found");
  expect(await codeOf(auth.withKey(above.key, ADDRESS))).toBe("none");
  expect(await codeOf(auth.revokeKey(ROOT, foreign.id))).toBe("none");
});

verifies("ROLES", "a key narrowed to one session stays so, and is no server's only operator", async () => {
  await using fixture = await open();
  const { auth } = fixture;
  const narrow = await auth.createKey(ROOT, { tenant: "default", name: "", roles: ["operator"], sessionId: "s1" });
  expect(narrow.session_id).toBe("s1");
  const principal = await auth.withKey(narrow.key, ADDRESS);
  expect(principal).toMatchObject({ sessionId: "s1" });
  expect(await codeOf(auth.createTicket(principal, { sessionId: "s2" }))).toBe("not_found");
  const { ticket } = await auth.createTicket(principal, {});
  expect(await auth.withTicket(ticket, { for: "socket" }, ADDRESS)).toMatchObject({ sessionId: "s1", ticket: true });
  const first = await auth.withKey(auth.createdKey ?? "", ADDRESS);
  await auth.revokeKey(ROOT, first.id);
  expect((await fixture.reopen()).createdKey).toMatch(/^pb_/);
});

verifies("KEYS", "repeated failures of an address are told to wait, and a valid key still passes", async () => {
  await using fixture = await open(ADMIN_KEY);
  const { auth } = fixture;
  const attempt = (token: string, address = ADDRESS) => codeOf(auth.withKey(token, address));
  const wrong = "pb_admin_wrongwrongwrongwrongwrong";
  const answers: string[] = [];
  for (let round = 0; round < 11; round++) answers.push(await attempt(wrong));
  expect(answers).toEqual([...Array.from({ length: 10 }, () => "unauthenticated"), "rate_limited"]);
  // Guessing one key does not stop others behind the same address, nor the same key elsewhere.
  const other = await auth.createKey(ROOT, { tenant: "default", name: "", roles: ["viewer"] });
  expect(await attempt(other.key)).toBe("none");
  expect(await attempt(ADMIN_KEY, "192.0.2.2")).toBe("none");
  expect(await attempt(ADMIN_KEY)).toBe("rate_limited");
  for (let round = 0; round < 20; round++) await attempt(`pb_guess${round}_0123456789abcdefghij`);
  expect(await attempt("pb_guess99_0123456789abcdefghij")).toBe("rate_limited");
  fixture.advance(60_000);
  expect(await attempt(ADMIN_KEY)).toBe("none");
});

verifies("TICKETS", "a ticket works once, for 30 seconds, with no more than its maker's roles", async () => {
  await using fixture = await open(ADMIN_KEY);
  const { auth } = fixture;
  const maker = await auth.withKey(ADMIN_KEY, ADDRESS);
  const { ticket, expiresAtMs } = await auth.createTicket(maker, { roles: ["viewer"], sessionId: "s1" });
  expect(expiresAtMs).toBe(1_700_000_030_000);
  const redeem = (text: string) => auth.withTicket(text, { for: "socket" }, ADDRESS);
  expect(await redeem(ticket)).toEqual({
    id: maker.id,
    tenant: "default",
    roles: ["viewer"],
    sessionId: "s1",
    ticket: true,
  });
  expect(await codeOf(redeem(ticket))).toBe("unauthenticated");
  const approver: Principal = { id: "p", tenant: "default", roles: ["approver"] };
  expect(await codeOf(auth.createTicket(approver, { roles: ["driver"] }))).toBe("forbidden");
  expect(await codeOf(auth.createTicket(approver, { roles: ["viewer"] }))).toBe("none");
  const late = await auth.createTicket(maker, {});
  fixture.advance(30_000);
  expect(await codeOf(redeem(late.ticket))).toBe("unauthenticated");
  const viewerKey = await auth.createKey(ROOT, { tenant: "default", name: "", roles: ["viewer"] });
  const viewer = await auth.withKey(viewerKey.key, ADDRESS);
  expect(await codeOf(auth.createTicket(viewer, { roles: ["operator"] }))).toBe("forbidden");
  expect(await codeOf(auth.createTicket(viewer, { ttlMs: 901_000 }))).toBe("bad_request");
  const narrow = { ...viewer, sessionId: "s1" };
  expect(await codeOf(auth.createTicket(narrow, { sessionId: "s2" }))).toBe("not_found");
  expect(await redeem((await auth.createTicket(narrow, {})).ticket)).toMatchObject({ sessionId: "s1" });
});

verifies("TICKETS", "a stream may come back with its ticket for ten minutes, to the same session only", async () => {
  await using fixture = await open(ADMIN_KEY);
  const { auth } = fixture;
  const maker = await auth.withKey(ADMIN_KEY, ADDRESS);
  const { ticket } = await auth.createTicket(maker, {});
  const stream = (sessionId: string) => auth.withTicket(ticket, { for: "stream", sessionId }, ADDRESS);
  await stream("s1");
  fixture.advance(9 * 60_000);
  await stream("s1");
  expect(await codeOf(stream("s2"))).toBe("unauthenticated");
  expect(await codeOf(auth.withTicket(ticket, { for: "socket" }, ADDRESS))).toBe("unauthenticated");
  fixture.advance(60_000);
  expect(await codeOf(stream("s1"))).toBe("unauthenticated");
});

verifies("TICKETS", "revoking a key ends its tickets and cookies", async () => {
  await using fixture = await open(ADMIN_KEY);
  const { auth } = fixture;
  const made = await auth.createKey(ROOT, { tenant: "default", name: "", roles: ["viewer"] });
  const viewer = await auth.withKey(made.key, ADDRESS);
  const { ticket } = await auth.createTicket(viewer, {});
  const { cookie } = await auth.createCookie(viewer);
  expect(await auth.withCookie(cookie)).toMatchObject({ id: made.id });
  await auth.revokeKey(ROOT, made.id);
  expect(await auth.withCookie(cookie)).toBeUndefined();
  expect(await codeOf(auth.withTicket(ticket, { for: "socket" }, ADDRESS))).toBe("unauthenticated");
});

test("a console ticket lives 15 minutes and its cookie at most 12 hours", async () => {
  await using fixture = await open(ADMIN_KEY);
  const { auth } = fixture;
  const { ticket } = await auth.createConsoleTicket();
  fixture.advance(14 * 60_000);
  const principal = await auth.withTicket(ticket, { for: "console" }, ADDRESS);
  const { cookie, maxAgeS } = await auth.createCookie(principal);
  expect(maxAgeS).toBe(12 * 3_600);
  fixture.advance(12 * 3_600_000);
  expect(await auth.withCookie(cookie)).toBeUndefined();
});

test("last use is noted to the minute", async () => {
  await using fixture = await open(ADMIN_KEY);
  const lastUsed = async () => (await fixture.auth.listKeys(ROOT))[0]?.last_used_at_ms;
  await fixture.auth.withKey(ADMIN_KEY, ADDRESS);
  await fixture.store.write([]);
  expect(await lastUsed()).toBe(1_700_000_000_000);
  fixture.advance(59_000);
  await fixture.auth.withKey(ADMIN_KEY, ADDRESS);
  await fixture.store.write([]);
  expect(await lastUsed()).toBe(1_700_000_000_000);
});
