import { openMemoryStore } from "../../src/store/memory.ts";
import { openStore, type SqliteStore } from "../../src/store/sqlite.ts";
import { makeTempDir } from "./temp-dir.ts";

/** A store for one `await using` scope. */
export interface Engine extends AsyncDisposable {
  readonly store: SqliteStore;
}

/** SQLite in a directory of its own. */
export async function openFileEngine(): Promise<Engine> {
  const folder = makeTempDir();
  const store = await openStore({ dataDir: folder.path });
  return {
    store,
    async [Symbol.asyncDispose]() {
      await store.close();
      folder[Symbol.dispose]();
    },
  };
}

export async function openMemoryEngine(): Promise<Engine> {
  const store = openMemoryStore();
  return { store, [Symbol.asyncDispose]: () => store.close() };
}
