import { expect, test } from "vitest";
import { createSecrets } from "../../src/auth/secrets.ts";
import { openMemoryStore } from "../../src/store/memory.ts";
import { createSealer } from "../../src/store/seal.ts";

const ONE = "the-first-key-of-thirty-two-characters";
const TWO = "another-key-which-came-a-year-later";
const actor = { id: "key_1" };

/** Secrets over a store that the test can look into. */
async function openSecrets() {
  const store = openMemoryStore();
  let nowMs = 1_000;
  const open = (...keys: [string, ...string[]]) =>
    createSecrets({ store, sealer: createSealer(keys), now: () => (nowMs += 1) });
  const dump = async (table: string) => JSON.stringify(await store.read(`SELECT * FROM ${table}`));
  return { store, open, secrets: await open(ONE), dump, [Symbol.asyncDispose]: () => store.close() };
}

test("a secret is made, changed, listed and removed without its value; only valueOf tells it", async () => {
  await using host = await openSecrets();
  const { secrets } = host;
  const made = await secrets.create("t", { name: "B", value: "first value" }, actor);
  expect(made).toEqual({ id: expect.stringMatching(/^sec_/), name: "B", created_at_ms: 1_001, updated_at_ms: 1_001 });
  await secrets.create("t", { name: "A", value: "x" }, actor);
  const changed = await secrets.update("t", { name: "B", value: "second value" }, actor);
  expect(changed).toEqual({ ...made, updated_at_ms: 1_003 });
  expect(await secrets.read("t", "B")).toEqual(changed);
  expect(await secrets.list("t", 1)).toEqual({ secrets: [expect.objectContaining({ name: "A" })], total: 2 });
  expect(await secrets.valueOf("t", "B")).toBe("second value");
  expect(await secrets.remove("t", "B", actor)).toEqual(changed);
  await expect(secrets.valueOf("t", "B")).rejects.toMatchObject({ code: "not_found" });
  const audit = await host.dump("audit");
  expect(audit.match(/\\"outcome\\":\\"\w+\\"/g)).toEqual(
    ["created", "created", "changed", "removed"].map((outcome) => `\\"outcome\\":\\"${outcome}\\"`),
  );
  for (const text of [audit, await host.dump("secrets")]) expect(text).not.toMatch(/first value|second value/);
});

test("another tenant's secret is not there, under the same name neither", async () => {
  await using host = await openSecrets();
  const { secrets } = host;
  await secrets.create("t", { name: "A", value: "of t" }, actor);
  for (const ask of [
    () => secrets.read("u", "A"),
    () => secrets.valueOf("u", "A"),
    () => secrets.update("u", { name: "A", value: "x" }, actor),
    () => secrets.remove("u", "A", actor),
  ]) {
    await expect(ask()).rejects.toMatchObject({ code: "not_found" });
  }
  await secrets.create("u", { name: "A", value: "of u" }, actor);
  expect([await secrets.valueOf("t", "A"), await secrets.valueOf("u", "A")]).toEqual(["of t", "of u"]);
  // Moved to another tenant's row, it does not open.
  await host.store.write([
    {
      sql: "UPDATE secrets SET sealed = (SELECT sealed FROM secrets WHERE tenant = 't') WHERE tenant = 'u'",
      params: [],
    },
  ]);
  await expect(secrets.valueOf("u", "A")).rejects.toMatchObject({ code: "internal" });
});

test("a name is taken once, by whoever of many at once; the same request again gets the same answer", async () => {
  await using host = await openSecrets();
  const { secrets } = host;
  const tries = Array.from({ length: 5 }, (_, index) => secrets.create("t", { name: "A", value: `${index}` }, actor));
  const ends = await Promise.allSettled(tries);
  expect(ends.filter(({ status }) => status === "fulfilled")).toHaveLength(1);
  for (const end of ends) {
    if (end.status === "rejected")
      expect(end.reason).toMatchObject({ code: "bad_request", details: { field: "name" } });
  }
  const value = await secrets.valueOf("t", "A");
  expect(await secrets.create("t", { name: "A", value }, actor)).toEqual(await secrets.read("t", "A"));
  expect((await host.dump("audit")).match(/"created\\"/g)).toHaveLength(1);
});

test("a new key takes over at start; a start without the old one is refused, and changes nothing", async () => {
  await using host = await openSecrets();
  await host.secrets.create("t", { name: "A", value: "kept" }, actor);
  const before = await host.dump("secrets");
  await expect(host.open(TWO)).rejects.toMatchObject({ code: "config_invalid" });
  expect(await host.dump("secrets")).toBe(before);
  const rotated = await host.open(TWO, ONE);
  expect(await rotated.valueOf("t", "A")).toBe("kept");
  expect(await host.dump("secrets")).not.toBe(before);
  expect(await (await host.open(TWO)).valueOf("t", "A")).toBe("kept");
});
