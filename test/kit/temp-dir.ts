import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

/** A directory for one test, gone with the `using` scope that holds it. */
export interface TempDir extends Disposable {
  readonly path: string;
}

export function makeTempDir(): TempDir {
  const path = mkdtempSync(join(tmpdir(), "patchbay-test-"));
  return { path, [Symbol.dispose]: () => rmSync(path, { recursive: true, force: true }) };
}
