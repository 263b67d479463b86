import { openStore } from "../../src/store/sqlite.ts";
import type { WebhookOptions } from "../../src/webhooks/options.ts";
import type { Webhooks, WebhooksParts } from "../../src/webhooks/port.ts";
import { createWebhooks } from "../../src/webhooks/webhooks.ts";
import { TEST_SEALER } from "../kit/sealer.ts";
import { makeTempDir } from "../kit/temp-dir.ts";

/** Webhooks over a real database, which can be closed and opened again. */
export interface WebhookHost extends AsyncDisposable {
  readonly webhooks: Webhooks;
  /** Queues an event of session `s`, as an append does, and resolves when it is durable. */
  tell(seq: number, eventType?: string, payload?: Readonly<Record<string, unknown>>, tenant?: string): Promise<void>;
  /** The server stops, and starts again on the same data. */
  reopen(changed?: Partial<WebhooksParts>): Promise<WebhookHost>;
}

const QUICK: Partial<WebhookOptions> = { minRetryMs: 5, maxRetryMs: 20 };

async function openAt(dataDir: string, parts: Partial<WebhooksParts>, done: () => void): Promise<WebhookHost> {
  const store = await openStore({ dataDir });
  const webhooks = await createWebhooks({
    store,
    sealer: TEST_SEALER,
    allowedHosts: ["127.0.0.1"],
    report: (_id, error) => {
      throw error;
    },
    ...parts,
    options: { ...QUICK, ...parts.options },
  });
  const close = async (): Promise<void> => {
    await webhooks.close();
    await store.close();
  };
  return {
    webhooks,
    async tell(seq, event_type = "turn.completed", payload = { turn_id: "t" }, tenant = "default") {
      const event = { seq, event_type, payload, atMs: Date.now(), turn_id: "t" };
      await webhooks.store.write(webhooks.outbox({ id: "s", tenant }, event));
    },
    async reopen(changed = {}) {
      await close();
      return openAt(dataDir, { ...parts, ...changed }, done);
    },
    async [Symbol.asyncDispose]() {
      await close();
      done();
    },
  };
}

export function openWebhooks(parts: Partial<WebhooksParts> = {}): Promise<WebhookHost> {
  const folder = makeTempDir();
  return openAt(folder.path, parts, () => folder[Symbol.dispose]());
}
