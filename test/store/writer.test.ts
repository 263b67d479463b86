import { once } from "node:events";
import { join } from "node:path";
import type { Worker } from "node:worker_threads";
import { expect, test } from "vitest";
import { openStore } from "../../src/store/sqlite.ts";
import { startWriter } from "../../src/store/writer.ts";
import { makeTempDir } from "../kit/temp-dir.ts";

test("when the writing thread dies, waiting and later writes reject, reads go on, and close still works", async () => {
  using folder = makeTempDir();
  const started: Promise<Worker[]> = once(process, "worker");
  const store = await openStore({ dataDir: folder.path });
  const [thread] = await started;
  const insert = (id: string) => ({ sql: "INSERT INTO tenants (id, created_at_ms) VALUES (?, 0)", params: [id] });
  await store.write([insert("kept")]);

  const dying = thread?.terminate();
  const waiting = [store.write([insert("a")]), store.write([insert("b")])];
  for (const one of waiting) await expect(one).rejects.toMatchObject({ code: "internal" });
  await dying;
  await expect(store.write([insert("c")])).rejects.toMatchObject({ code: "internal" });
  expect(await store.read("SELECT id FROM tenants")).toEqual([{ id: "kept" }]);
  await store.close();
  const again = await openStore({ dataDir: folder.path });
  expect(await again.read("SELECT id FROM tenants")).toEqual([{ id: "kept" }]);
  await again.close();
});

test("a database that cannot be opened fails the start", async () => {
  using folder = makeTempDir();
  await expect(startWriter(join(folder.path, "missing", "a.db"))).rejects.toThrow("unable to open");
});
