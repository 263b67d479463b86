import { resolveClaude } from "./agents/claude-binary.ts";
import type { Readiness, ReadinessCheck } from "./api/config.ts";
import type { Store } from "./store/port.ts";

/** An answer of /readyz is good for this long: probes come from anybody, and each one touches the disk. */
const READINESS_MS = 1000;

/** Asked for at each agent's start; found once, and looked for again only after a failure. */
export function rememberBinary(configured: string | undefined): () => Promise<{ command: string; version: string }> {
  let found: Promise<{ command: string; version: string }> | undefined;
  return () => {
    found ??= resolveClaude({ configured }).catch((error: unknown) => {
      found = undefined;
      throw error;
    });
    return found;
  };
}

/** What /readyz says. Without a `binary` agents live elsewhere, and so does their CLI. */
export function rememberReadiness(
  store: Store,
  binary: (() => Promise<unknown>) | undefined,
): () => Promise<Readiness> {
  return rememberFor(READINESS_MS, () => readiness(store, binary));
}

function rememberFor<T>(ms: number, ask: () => Promise<T>): () => Promise<T> {
  let last: { readonly at: number; readonly answer: Promise<T> } | undefined;
  return () => {
    if (last === undefined || performance.now() - last.at > ms) last = { at: performance.now(), answer: ask() };
    return last.answer;
  };
}

async function readiness(store: Store, binary: (() => Promise<unknown>) | undefined): Promise<Readiness> {
  const check = async (work: Promise<unknown>, message: string): Promise<ReadinessCheck> => {
    try {
      await work;
      return { ok: true };
    } catch {
      return { ok: false, message };
    }
  };
  const now = Date.now();
  const touch = { sql: "INSERT OR REPLACE INTO meta (key, value) VALUES ('ready', ?)", params: [String(now)] };
  const checks = {
    store: await check(store.write([touch]), "The data directory cannot be written; see the server's log."),
    agent: await check(binary?.() ?? Promise.resolve(), "The claude CLI was not found; run `patchbay doctor`."),
  };
  return { ok: Object.values(checks).every(({ ok }) => ok), checks };
}
