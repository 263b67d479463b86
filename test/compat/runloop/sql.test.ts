import { existsSync } from "node:fs";
import fc from "fast-check";
import { expect, test } from "vitest";
import { type AxonSql, createAxonSql } from "../../../src/compat/runloop/sql/axon-sql.ts";
import type { SqlLimits, SqlValue } from "../../../src/compat/runloop/sql/port.ts";
import { makeTempDir } from "../../kit/temp-dir.ts";

/** A service with a folder of its own, and short ways to ask the axon `a` of the tenant `t`. */
function openSql(limits: Partial<SqlLimits> = {}) {
  const folder = makeTempDir();
  const sql = createAxonSql({ folder: folder.path, limits });
  const query = (text: string, params?: SqlValue[]) => sql.query("t", "a", { sql: text, params });
  return {
    sql,
    folder: folder.path,
    query,
    rows: async (text: string, params?: SqlValue[]) => (await query(text, params)).rows,
    batch: (...texts: string[]) =>
      sql.batch(
        "t",
        "a",
        texts.map((text) => ({ sql: text })),
      ),
    [Symbol.dispose]() {
      sql.close();
      folder[Symbol.dispose]();
    },
  };
}

const ENDLESS = "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r)";

test("what Runloop's examples do: a table, a row, a look", async () => {
  using db = openSql();
  const made = await db.query("CREATE TABLE tasks (id INTEGER PRIMARY KEY, name TEXT)");
  expect(made).toMatchObject({ columns: [], rows: [], meta: { changes: 0, rows_read_limit_reached: false } });
  const inserted = await db.query("INSERT INTO tasks (name) VALUES (?), (?)", ["one", null]);
  expect(inserted).toMatchObject({ columns: [], rows: [], meta: { changes: 2 } });
  const found = await db.query("SELECT *, id * 2 AS twice FROM tasks WHERE id >= ?", [1]);
  expect(found.columns).toEqual([
    { name: "id", type: "INTEGER" },
    { name: "name", type: "TEXT" },
    { name: "twice", type: "" },
  ]);
  expect(found.rows).toEqual([
    [1, "one", 2],
    [2, null, 4],
  ]);
  expect(found.meta.changes).toBe(0);
  expect(found.meta.duration_ms).toBeGreaterThan(0);
  expect((await db.query("UPDATE tasks SET name = 'x' WHERE id > 7")).meta.changes).toBe(0);
  const returned = await db.query("DELETE FROM tasks RETURNING id");
  expect([returned.rows, returned.meta.changes]).toEqual([[[1], [2]], 2]);
});

test("values keep their kind on the way in and out", async () => {
  using db = openSql();
  expect(await db.rows("SELECT ? || 'x', typeof(?), ?, ?, ?, ?", [1, 2, true, 1.5, "ä\u{1F600}\r\n", null])).toEqual([
    ["1x", "integer", 1, 1.5, "ä\u{1F600}\r\n", null],
  ]);
  expect(await db.rows("SELECT 9223372036854775807, x'00ff', 1e300 * 1e300")).toEqual([
    ["9223372036854775807", "AP8=", null],
  ]);
  await db.query("CREATE TABLE kept (v)");
  const value = fc.oneof(
    fc.string({ unit: "grapheme" }),
    fc.maxSafeInteger(),
    fc.constant(null),
    fc.double({ noNaN: true, noDefaultInfinity: true }),
  );
  await fc.assert(
    fc.asyncProperty(fc.array(value, { minLength: 1, maxLength: 20 }), async (values) => {
      const marks = values.map(() => "(?)").join();
      const [, , step] = await db.sql.batch("t", "a", [
        { sql: "DELETE FROM kept" },
        { sql: `INSERT INTO kept VALUES ${marks}`, params: values },
        { sql: "SELECT v FROM kept ORDER BY rowid" },
      ]);
      expect(step).toMatchObject({ success: { rows: values.map((one) => [one === 0 ? 0 : one]) } });
    }),
    { numRuns: 30 },
  );
});

test("a query is exactly one statement", async () => {
  using db = openSql();
  expect(await db.rows("SELECT 1; -- no more\n /* nor here */ ;;")).toEqual([[1]]);
  for (const [text, words] of [
    ["SELECT 1; SELECT 2", /more than one/],
    ["SELECT 1; DROP TABLE x", /more than one/],
    ["CREATE TABLE x (a); CREATE TABLE y (a)", /more than one/],
    ["SELECT 1; nonsense", /more than one/],
    ["", /no statements/],
    ["-- nothing", /no statements/],
    ["SELECT 1\0; DROP TABLE x", /NUL/],
    ["SELEC 1", /syntax error/],
    ["SELECT * FROM nowhere", /no such table: nowhere/],
  ] as const) {
    await expect(db.query(text), text).rejects.toMatchObject({
      code: "sql_failed",
      message: expect.stringMatching(words),
    });
  }
  expect(await db.rows("SELECT count(*) FROM sqlite_schema")).toEqual([[0]]);
  await expect(db.query("SELECT ?", [1, 2])).rejects.toMatchObject({ code: "sql_failed" });
});

test("a batch happens as a whole or not at all", async () => {
  using db = openSql();
  const steps = await db.batch("CREATE TABLE t (a UNIQUE)", "INSERT INTO t VALUES (1), (2)", "SELECT count(*) FROM t");
  expect(steps.map((step) => ("success" in step ? step.success.rows : step.error))).toEqual([[], [], [[2]]]);
  const failed = await db.batch("INSERT INTO t VALUES (3)", "INSERT INTO t VALUES (1)", "INSERT INTO t VALUES (4)");
  expect(failed).toEqual([
    { error: { kind: "failed", message: "rolled back: statement 2 of the batch failed" } },
    { error: { kind: "failed", message: "UNIQUE constraint failed: t.a" } },
    { error: { kind: "failed", message: "not run: statement 2 of the batch failed" } },
  ]);
  expect(await db.rows("SELECT a FROM t")).toEqual([[1], [2]]);
  await db.batch(
    "CREATE TABLE parent (id PRIMARY KEY)",
    "CREATE TABLE child (p REFERENCES parent DEFERRABLE INITIALLY DEFERRED)",
  );
  expect(await db.batch("INSERT INTO child VALUES (7)")).toEqual([
    { error: { kind: "failed", message: "FOREIGN KEY constraint failed" } },
  ]);
  expect(await db.rows("SELECT * FROM child")).toEqual([]);
  expect(await db.batch()).toEqual([]);
  await expect(db.batch(...Array.from({ length: 101 }, () => "SELECT 1"))).rejects.toMatchObject({ code: "sql_limit" });
});

test("axons and tenants do not see each other's tables, and what was written is there after a restart", async () => {
  using folder = makeTempDir();
  const write = { sql: "CREATE TABLE mine (a)" };
  const look = { sql: "SELECT name FROM sqlite_schema" };
  const first = createAxonSql({ folder: folder.path });
  await first.query("t", "a", write);
  for (const [tenant, axon] of [
    ["t", "b"],
    ["u", "a"],
    ["T", "a"],
    ["t", "../t/a"],
  ] as const) {
    expect((await first.query(tenant, axon, look)).rows).toEqual([]);
  }
  first.close();
  const second = createAxonSql({ folder: folder.path });
  expect((await second.query("t", "a", look)).rows).toEqual([["mine"]]);
  await second.remove("t", "a");
  expect((await second.query("t", "a", look)).rows).toEqual([]);
  second.close();
});

/** Each would reach a file, another database, code, or a setting that guards one of these. */
const ATTACKS = [
  "ATTACH 'FILE' AS x",
  "ATTACH ':memory:' AS x",
  "ATTACH '' AS x",
  "attach/**/database 'file:FILE?mode=rwc' as x",
  "EXPLAIN ATTACH 'FILE' AS x",
  "DETACH main",
  "VACUUM",
  "VACUUM INTO 'FILE'",
  "VACUUM main INTO 'FILE'",
  "SELECT load_extension('FILE')",
  "SELECT LOAD_EXTENSION('FILE', 'init')",
  "SELECT readfile('/etc/passwd')",
  "SELECT writefile('FILE', 'x')",
  "SELECT edit('x')",
  "SELECT * FROM fsdir('/')",
  "SELECT fts3_tokenizer('simple')",
  "SELECT fts3_tokenizer('simple', x'4141414141414141')",
  "CREATE VIRTUAL TABLE x USING csv(filename='/etc/passwd')",
  "CREATE VIRTUAL TABLE x USING fts4(content)",
  "CREATE VIRTUAL TABLE x USING dbstat(main)",
  "CREATE VIRTUAL TABLE x USING zipfile('FILE')",
  "PRAGMA temp_store_directory = '/tmp'",
  "PRAGMA data_store_directory = '/tmp'",
  "PRAGMA database_list",
  "SELECT file FROM pragma_database_list",
  "CREATE VIEW v AS SELECT * FROM pragma_database_list; ",
  "PRAGMA writable_schema = ON",
  "PRAGMA journal_mode = OFF",
  "PRAGMA journal_mode = WAL",
  "PRAGMA synchronous = OFF",
  "PRAGMA max_page_count = 1000000000",
  "PRAGMA page_size = 65536",
  "PRAGMA mmap_size = 1000000000",
  "PRAGMA cache_size = -1000000",
  "PRAGMA temp_store = MEMORY",
  "PRAGMA hard_heap_limit = 0",
  "PRAGMA trusted_schema = ON",
  "PRAGMA foreign_keys = OFF",
  "PRAGMA schema_version = 7",
  "PRAGMA locking_mode = EXCLUSIVE",
  "PRAGMA busy_timeout = 1000000",
  "PRAGMA wal_checkpoint",
  "PRAGMA main.journal_mode = MEMORY",
  "BEGIN",
  "COMMIT",
  "ROLLBACK",
  "END",
  "SAVEPOINT x",
  "RELEASE x",
  "UPDATE sqlite_schema SET sql = 'x'",
  "DELETE FROM sqlite_master",
  "INSERT INTO sqlite_schema VALUES ('table', 'x', 'x', 0, 'x')",
];

test("statements that reach for files, code, settings or transactions are refused, alone and in a batch", async () => {
  using db = openSql();
  await db.query("CREATE TABLE kept (a)");
  const file = `${db.folder}/planted`;
  for (const attack of ATTACKS) {
    const sql = attack.replaceAll("FILE", file);
    if (sql.startsWith("CREATE VIEW")) await db.query(sql);
    const text = sql.startsWith("CREATE VIEW") ? "SELECT * FROM v" : sql;
    await expect(db.query(text), text).rejects.toMatchObject({ code: "sql_failed" });
    const [first, second] = await db.batch("INSERT INTO kept VALUES (1)", text);
    expect([first, second], text).toMatchObject([{ error: {} }, { error: {} }]);
  }
  expect(existsSync(file)).toBe(false);
  expect(await db.rows("SELECT count(*) FROM kept")).toEqual([[0]]);
});

test("what is refused says so in words", async () => {
  using db = openSql();
  await expect(db.query("ATTACH 'x' AS y")).rejects.toThrow("ATTACH and VACUUM are not served. Correct the statement.");
  await expect(db.query("PRAGMA database_list")).rejects.toThrow("PRAGMA database_list is not served");
  await expect(db.query("BEGIN")).rejects.toThrow("BEGIN, COMMIT and ROLLBACK are not served");
});

test("full text search, boxes, JSON, triggers, views and the harmless pragmas are served", async () => {
  using db = openSql();
  await db.batch(
    "CREATE VIRTUAL TABLE words USING fts5(body)",
    "INSERT INTO words VALUES ('hello there'), ('good bye')",
    "CREATE VIRTUAL TABLE boxes USING rtree(id, x0, x1)",
    "CREATE TABLE log (a)",
    "CREATE TABLE t (a)",
    "CREATE TRIGGER copy AFTER INSERT ON t BEGIN INSERT INTO log VALUES (new.a); END",
    "CREATE VIEW both AS SELECT a FROM t UNION ALL SELECT a FROM log",
    "INSERT INTO t VALUES (1), (2)",
    "PRAGMA user_version = 5",
  );
  expect(await db.rows("SELECT body FROM words WHERE words MATCH 'hello'")).toEqual([["hello there"]]);
  expect(await db.rows("SELECT a FROM both ORDER BY a")).toEqual([[1], [1], [2], [2]]);
  expect(await db.rows("SELECT value ->> 'a' FROM json_each('[{\"a\":1}]')")).toEqual([[1]]);
  expect(await db.rows("PRAGMA user_version")).toEqual([[5]]);
  expect((await db.rows("PRAGMA table_info(t)"))[0]?.[1]).toBe("a");
  expect(await db.rows("SELECT name FROM pragma_table_info('t')")).toEqual([["a"]]);
  expect(await db.rows("PRAGMA integrity_check")).toEqual([["ok"]]);
});

test("rows and bytes beyond their limits are left out, and that is said", async () => {
  using db = openSql({ rows: 10, resultBytes: 1_000 });
  const many = await db.query(`${ENDLESS} SELECT n FROM r`);
  expect([many.rows.length, many.meta.rows_read_limit_reached]).toEqual([10, true]);
  const large = await db.query(`${ENDLESS} SELECT hex(zeroblob(150)) FROM r`);
  expect([large.rows.length, large.meta.rows_read_limit_reached]).toEqual([3, true]);
  const exact = await db.query(`${ENDLESS} SELECT n FROM r LIMIT 10`);
  expect([exact.rows.length, exact.meta.rows_read_limit_reached]).toEqual([10, false]);
});

test("a statement that takes too long is stopped, nothing of it has happened, and the next one runs", async () => {
  using db = openSql({ timeMs: 300 });
  await db.query("CREATE TABLE t (a)");
  await expect(db.query(`${ENDLESS} SELECT count(*) FROM r`)).rejects.toMatchObject({ code: "sql_limit" });
  await expect(db.query(`INSERT INTO t ${ENDLESS} SELECT n FROM r`)).rejects.toMatchObject({ code: "sql_limit" });
  await expect(db.batch("INSERT INTO t VALUES (1)", `${ENDLESS} SELECT count(*) FROM r`)).rejects.toMatchObject({
    code: "sql_limit",
  });
  expect(await db.rows("SELECT count(*) FROM t")).toEqual([[0]]);
  expect(await db.rows("PRAGMA integrity_check")).toEqual([["ok"]]);
});

test("a database, a value and a statement have their largest size, temporary space and memory too", async () => {
  using db = openSql({ databaseBytes: 1024 * 1024, valueBytes: 100_000, statementBytes: 10_000, timeMs: 20_000 });
  await db.query("CREATE TABLE t (a)");
  const limit = (text: string) => expect(db.query(text), text).rejects.toMatchObject({ code: "sql_limit" });
  await limit(`INSERT INTO t ${ENDLESS} SELECT zeroblob(50000) FROM r`);
  await limit("SELECT zeroblob(200000)");
  await limit("SELECT printf('%.*c', 100000000, 'x')");
  await limit(`${ENDLESS} SELECT n FROM r ORDER BY hex(randomblob(1000))`);
  await expect(db.query(`SELECT '${"x".repeat(20_000)}'`)).rejects.toMatchObject({ code: "sql_limit" });
  expect(await db.rows("SELECT count(*) FROM t")).toEqual([[0]]);
  await db.query("INSERT INTO t VALUES (zeroblob(50000))");
});

test("an aggregate that grows in memory ends as one that takes too long, or too much", async () => {
  using db = openSql({ timeMs: 1_500, memoryBytes: 64 * 1024 * 1024 });
  const grow = `${ENDLESS} SELECT json_group_array(hex(randomblob(1000))) FROM r`;
  await expect(db.query(grow)).rejects.toMatchObject({ code: "sql_limit" });
  expect(await db.rows("SELECT 1")).toEqual([[1]]);
});

test("calls of one axon run in order, those of others beside them, and too many at once are refused", async () => {
  using db = openSql({ waitingPerAxon: 20, processes: 2, processesPerTenant: 1, timeMs: 2_000 });
  await db.query("CREATE TABLE t (a)");
  const slow = db.query(`${ENDLESS} SELECT count(*) FROM r`).catch((error: unknown) => error);
  const writes = Array.from({ length: 19 }, (_, index) => db.query("INSERT INTO t VALUES (?)", [index]));
  await expect(db.query("SELECT 1")).rejects.toMatchObject({ code: "rate_limited" });
  // Another tenant does not wait for the slow one.
  const started = performance.now();
  await db.sql.query("other", "a", { sql: "SELECT 1" });
  expect(performance.now() - started).toBeLessThan(1_900);
  expect(await slow).toMatchObject({ code: "sql_limit" });
  await Promise.all(writes);
  expect((await db.rows("SELECT group_concat(a) FROM t"))[0]).toEqual([Array.from({ length: 19 }, (_, i) => i).join()]);
});

test("when it is closed, what runs and what waits is told so, and no process stays", async () => {
  using folder = makeTempDir();
  const sql: AxonSql = createAxonSql({ folder: folder.path });
  await sql.query("t", "a", { sql: "SELECT 1" });
  const calls = Array.from({ length: 3 }, () => sql.query("t", "a", { sql: `${ENDLESS} SELECT count(*) FROM r` }));
  sql.close();
  const ends = await Promise.allSettled([...calls, sql.query("t", "a", { sql: "SELECT 1" })]);
  for (const end of ends)
    expect(end).toMatchObject({ status: "rejected", reason: { message: expect.stringContaining("shutting down") } });
});
