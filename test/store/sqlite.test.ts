import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdirSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { describe, expect, test } from "vitest";
import { openConnection } from "../../src/store/connection.ts";
import { MIGRATIONS, migrate } from "../../src/store/migrations.ts";
import type { Store, Write } from "../../src/store/port.ts";
import { openStore } from "../../src/store/sqlite.ts";
import { openFileEngine, openMemoryEngine } from "../kit/engines.ts";
import { makeTempDir } from "../kit/temp-dir.ts";
import { verifies } from "../kit/verifies.ts";

const tenant = (id: string, at: number): Write => ({
  sql: "INSERT INTO tenants (id, created_at_ms) VALUES (?, ?)",
  params: [id, at],
});

async function tenants(store: Store): Promise<unknown[]> {
  return (await store.read("SELECT id FROM tenants ORDER BY created_at_ms, id")).map((row) => row["id"]);
}

describe.each([
  { name: "in a file", open: openFileEngine },
  { name: "in memory", open: openMemoryEngine },
])("the store $name", ({ open }) => {
  test("a call is applied whole or not at all, and fails alone in its transaction", async () => {
    await using engine = await open();
    const { store } = engine;
    const before = store.commits();
    const good = store.write([tenant("a", 1), tenant("b", 2)]);
    const bad = store.write([tenant("c", 3), tenant("a", 4)]);
    const wrong = store.write([{ sql: "INSERT INTO nowhere VALUES (?)", params: [1] }]);
    const after = store.write([tenant("d", 5)]);
    await expect(bad).rejects.toMatchObject({
      code: "internal",
      cause: { message: expect.stringContaining("UNIQUE") },
    });
    await expect(wrong).rejects.toMatchObject({ code: "internal" });
    await Promise.all([good, after]);
    expect(await tenants(store)).toEqual(["a", "b", "d"]);
    expect(store.commits() - before).toBe(1);
  });

  test("calls of one tick, and those that come during a commit, share transactions and keep their order", async () => {
    await using engine = await open();
    const { store } = engine;
    const before = store.commits();
    const settled: number[] = [];
    const calls = Array.from({ length: 500 }, (_, n) => store.write([tenant(`t${n}`, n)]).then(() => settled.push(n)));
    await Promise.all(calls);
    expect(settled).toEqual(Array.from({ length: 500 }, (_, n) => n));
    expect(store.commits() - before).toBeLessThan(10);
    expect(await tenants(store)).toHaveLength(500);
  });

  test("every kind of value comes back as it was, blobs also from the middle of a bigger block", async () => {
    await using engine = await open();
    const { store } = engine;
    const block = Buffer.from("....payload....");
    const blobs = [block.subarray(4, 11), new Uint8Array(0), Buffer.from([0, 255, 10, 13])];
    const sql =
      "INSERT INTO keys (id, tenant, roles, name, secret_hash, created_at_ms, expires_at_ms) VALUES (?, 't', '[]', ?, ?, ?, NULL)";
    await store.write(
      blobs.map((blob, n) => ({ sql, params: [`k${n}`, "ü\u0000\u{1f600}", blob, n === 0 ? 2n : 1.0] })),
    );
    const rows = await store.read("SELECT name, secret_hash, created_at_ms, expires_at_ms FROM keys ORDER BY id");
    expect(rows.map((row) => Buffer.from(row["secret_hash"] as Uint8Array).toString("latin1"))).toEqual([
      "payload",
      "",
      "\0ÿ\n\r",
    ]);
    expect(rows[0]).toMatchObject({ name: "ü\u0000\u{1f600}", created_at_ms: 2, expires_at_ms: null });
    expect(block.toString()).toBe("....payload....");
  });

  test("a read that fails rejects, and a closed store takes no more", async () => {
    await using engine = await open();
    const { store } = engine;
    await expect(store.read("SELECT * FROM nowhere")).rejects.toMatchObject({ code: "internal" });
    const last = store.write([tenant("a", 1)]);
    await store.close();
    await last;
    await expect(store.write([tenant("b", 1)])).rejects.toMatchObject({ code: "internal" });
  });
});

test("reads see what was committed, and cannot write", async () => {
  await using engine = await openFileEngine();
  const { store } = engine;
  const writing = store.write([tenant("a", 1)]);
  expect(await tenants(store)).toEqual([]);
  await writing;
  expect(await tenants(store)).toEqual(["a"]);
  await expect(store.read("DELETE FROM tenants")).rejects.toMatchObject({ code: "internal" });
});

verifies("DATA-DIR", "what was written is there when the directory is opened again", async () => {
  using folder = makeTempDir();
  const dataDir = join(folder.path, "made", "for", "it");
  const first = await openStore({ dataDir });
  await first.write([tenant("a", 1)]);
  await first.close();
  const second = await openStore({ dataDir });
  expect(await tenants(second)).toEqual(["a"]);
  await second.close();
  expect(statSync(dataDir).mode & 0o777).toBe(0o700);
  expect(statSync(join(dataDir, "patchbay.db")).mode & 0o777).toBe(0o600);
});

verifies("DATA-DIR", "a directory is held by one store at a time, in this process and in another", async () => {
  using folder = makeTempDir();
  const dataDir = folder.path;
  const first = await openStore({ dataDir });
  const refused = openStore({ dataDir });
  await expect(refused).rejects.toMatchObject({
    code: "data_dir_in_use",
    message: expect.stringMatching(/Stop it, or choose another/),
  });
  // The refusal has not cost the first one its lock.
  await expect(openStore({ dataDir })).rejects.toMatchObject({ code: "data_dir_in_use" });
  await first.close();

  const child = spawn(
    process.execPath,
    [fileURLToPath(new URL("../kit/killed-writer.ts", import.meta.url)), dataDir, "hold"],
    {
      stdio: ["ignore", "pipe", "inherit"],
    },
  );
  await once(child.stdout, "data");
  await expect(openStore({ dataDir })).rejects.toMatchObject({ code: "data_dir_in_use" });
  child.kill("SIGKILL");
  await once(child, "exit");
  const after = await openStore({ dataDir });
  await after.close();
});

verifies("DATA-DIR", "a directory that cannot be used says so and what to do", async () => {
  using folder = makeTempDir();
  const file = join(folder.path, "file");
  writeFileSync(file, "");
  const unusable = {
    code: "data_dir_unusable",
    message: expect.stringMatching(/can write, or choose another PATCHBAY_DATA_DIR\.$/),
  };
  await expect(openStore({ dataDir: file })).rejects.toMatchObject(unusable);
  await expect(openStore({ dataDir: join(file, "below") })).rejects.toMatchObject(unusable);

  const occupied = join(folder.path, "occupied");
  mkdirSync(join(occupied, "patchbay.db"), { recursive: true });
  await expect(openStore({ dataDir: occupied })).rejects.toMatchObject(unusable);

  const garbage = join(folder.path, "garbage");
  mkdirSync(garbage);
  writeFileSync(join(garbage, "patchbay.db"), "not a database, ".repeat(1_000));
  await expect(openStore({ dataDir: garbage })).rejects.toMatchObject(unusable);
  // Nothing is held after a refusal.
  writeFileSync(join(garbage, "patchbay.db"), "");
  await (await openStore({ dataDir: garbage })).close();
});

verifies("DATA-DIR", "a directory of a newer version is refused and left as it is", async () => {
  using folder = makeTempDir();
  const dataDir = folder.path;
  await (await openStore({ dataDir })).close();
  const connection = openConnection(join(dataDir, "patchbay.db"));
  connection.exec("UPDATE meta SET value = '99' WHERE key = 'schema'");
  await expect(openStore({ dataDir })).rejects.toMatchObject({
    code: "data_dir_newer",
    message: expect.stringContaining("schema 99"),
  });
  expect(connection.all("SELECT value FROM meta WHERE key = 'schema'", [])).toEqual([{ value: "99" }]);
  connection.close();
});

test("migrations go on from where a database stands, each whole or not at all", () => {
  const connection = openConnection(":memory:");
  migrate(connection);
  migrate(connection);
  const newest = MIGRATIONS.length;
  const good = { id: newest + 1, name: "one more", sql: "CREATE TABLE more (a INTEGER) STRICT" };
  const bad = {
    id: newest + 2,
    name: "broken",
    sql: "CREATE TABLE half (a INTEGER) STRICT; CREATE TABLE more (a INTEGER)",
  };
  expect(() => migrate(connection, [...MIGRATIONS, good, bad])).toThrow("broken");
  expect(connection.all("SELECT value FROM meta WHERE key = 'schema'", [])).toEqual([{ value: String(newest + 1) }]);
  expect(connection.all("SELECT name FROM sqlite_master WHERE name = 'half'", [])).toEqual([]);
  expect(MIGRATIONS.map(({ id }) => id)).toEqual(MIGRATIONS.map((_, index) => index + 1));
  connection.close();
});
