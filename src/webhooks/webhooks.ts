import { randomBytes } from "node:crypto";
import { customAlphabet } from "nanoid";
import { BrokerError } from "../protocol/problems.ts";
import { WEBHOOK_EVENTS, type WebhookView } from "../protocol/webhooks.ts";
import type { Store, Write } from "../store/port.ts";
import { deliveryBody, type TellableEvent } from "./body.ts";
import { WEBHOOK_DEFAULTS } from "./options.ts";
import type { Webhooks, WebhooksParts } from "./port.ts";
import {
  deleteWebhook,
  dropOldest,
  insertDelivery,
  insertWebhook,
  listDeliveries,
  listWebhooks,
  readWebhooks,
  type StoredWebhook,
} from "./rows.ts";
import { createGuard } from "./target.ts";
import { createWorker, type Worker } from "./worker.ts";

const newId = customAlphabet("0123456789abcdefghijklmnopqrstuvwxyz", 12);
const newSecret = (): string => `whsec_${randomBytes(32).toString("base64url")}`;

/** Kinds of requests that an approver may answer; hooks and in-page tools are answered by programs. */
const LINKED_KINDS = ["permission", "question", "plan", "elicitation", "dialog"];

/** One webhook at work. */
interface Hook {
  readonly webhook: StoredWebhook;
  readonly worker: Worker;
  /** The last place given out. */
  place: number;
  disabled: boolean;
}

const noWebhook = (): BrokerError => new BrokerError("not_found", "There is no webhook with this id.");

/** The request that a link of this event could answer. */
function linkedRequest({ event_type, payload }: TellableEvent): string | undefined {
  const { request_id, kind } = payload;
  const isLinked = event_type === "request.opened" && LINKED_KINDS.some((linked) => linked === kind);
  return isLinked && typeof request_id === "string" ? request_id : undefined;
}

/** Opens the webhooks of a store, and goes on with what waits. */
export async function createWebhooks(parts: WebhooksParts): Promise<Webhooks> {
  const { store, sealer } = parts;
  const options = { ...WEBHOOK_DEFAULTS, ...parts.options };
  const now = parts.now ?? Date.now;
  const guard = createGuard(parts.allowedHosts ?? [], parts.resolve);
  const hooks = new Map<string, Hook>();
  /** The same by tenant: the outbox is asked for every event. */
  const tenants = new Map<string, readonly Hook[]>();
  /** Creations under way, so that many at once do not pass the limit. */
  const reserved = new Map<string, number>();
  const queued = new WeakMap<Write, Hook>();

  function open(webhook: StoredWebhook, place: number): Hook {
    const disabled = (): void => {
      hook.disabled = true;
    };
    const { answerLink, report } = parts;
    const worker = createWorker(webhook, { store, options, guard, now, answerLink, report, disabled });
    const hook: Hook = { webhook, worker, place, disabled: webhook.disabled_at_ms !== null };
    hooks.set(webhook.id, hook);
    tenants.set(webhook.tenant, [...ofTenant(webhook.tenant), hook]);
    return hook;
  }

  const ofTenant = (tenant: string): readonly Hook[] => tenants.get(tenant) ?? [];

  function find(tenant: string, id: string): Hook {
    const hook = hooks.get(id);
    if (hook === undefined || hook.webhook.tenant !== tenant) throw noWebhook();
    return hook;
  }

  function queue(hook: Hook, sessionId: string, event: TellableEvent): Write[] {
    hook.place += 1;
    const write = insertDelivery({
      webhook: hook.webhook.id,
      place: hook.place,
      event_id: `${sessionId}:${event.seq}`,
      event_type: event.event_type,
      session: sessionId,
      requestId: linkedRequest(event),
      body: deliveryBody(sessionId, event, options.bodyLimitBytes),
      attempts: 0,
      created_at_ms: event.atMs,
      next_at_ms: event.atMs,
    });
    queued.set(write, hook);
    // Places are given out in order, so what waits is within the last `queueLimit` of them.
    const upTo = hook.place - options.queueLimit;
    return upTo > 0 ? [write, ...dropOldest(hook.webhook.id, upTo)] : [write];
  }

  const watching: Store = {
    write(writes) {
      const done = store.write(writes);
      if (hooks.size === 0) return done;
      const told = new Set(writes.flatMap((write) => queued.get(write) ?? []));
      const wake = (): void => {
        for (const { worker } of told) worker.wake();
      };
      if (told.size > 0) void done.then(wake, () => undefined);
      return done;
    },
    read: store.read,
    close: store.close,
  };

  function reserve(tenant: string): () => void {
    const making = reserved.get(tenant) ?? 0;
    if (ofTenant(tenant).length + making >= options.perTenant) {
      throw new BrokerError("rate_limited", `A tenant has at most ${options.perTenant} webhooks. Remove one first.`);
    }
    reserved.set(tenant, making + 1);
    return () => void reserved.set(tenant, (reserved.get(tenant) ?? 1) - 1);
  }

  for (const { webhook, place } of await readWebhooks(store, sealer)) open(webhook, place).worker.wake();

  return {
    store: watching,
    outbox: ({ id, tenant }, event) =>
      ofTenant(tenant)
        .filter(({ webhook, disabled }) => !disabled && webhook.events.some((wanted) => wanted === event.event_type))
        .flatMap((hook) => queue(hook, id, event)),
    async create(tenant, { url, events = WEBHOOK_EVENTS, secret = newSecret() }, also) {
      const release = reserve(tenant);
      try {
        const { href } = await guard.checkNow(url);
        const created_at_ms = now();
        const webhook = { id: newId(), tenant, url: href, events, secret, created_at_ms, disabled_at_ms: null };
        const { secret: _, ...shown } = webhook;
        const view: WebhookView = { ...shown, queued: 0, dropped: 0 };
        await store.write([insertWebhook(webhook, sealer), ...also(view)]);
        open(webhook, 0);
        return { ...view, secret };
      } finally {
        release();
      }
    },
    list: (tenant) => listWebhooks(store, tenant),
    async remove(tenant, id, also) {
      const hook = find(tenant, id);
      const view = (await listWebhooks(store, tenant)).find((one) => one.id === id);
      if (view === undefined || !hooks.delete(id)) throw noWebhook();
      tenants.set(
        tenant,
        ofTenant(tenant).filter((one) => one !== hook),
      );
      await hook.worker.stop();
      await store.write([...deleteWebhook(id), ...also(view)]);
    },
    async deliveries(tenant, id, page) {
      find(tenant, id);
      const deliveries = await listDeliveries(store, id, page);
      return { deliveries, next: deliveries.at(-1)?.place ?? page.after };
    },
    async close() {
      await Promise.all([...hooks.values()].map(({ worker }) => worker.stop()));
    },
  };
}
