import type { Store } from "../store/port.ts";
import { type AnswerLink, withAnswer } from "./body.ts";
import { retryDelayMs, type WebhookOptions } from "./options.ts";
import type { AnswerAsk } from "./port.ts";
import { post } from "./post.ts";
import { type CallResult, type Delivery, disableWebhook, readNext, type StoredWebhook, saveCall } from "./rows.ts";
import { sign } from "./signature.ts";
import type { Guard } from "./target.ts";

/** After a failure of the store itself. */
const STORE_RETRY_MS = 1_000;
/** The longest wait that a timer of Node takes. */
const LONGEST_TIMER_MS = 2 ** 31 - 1;
const LONGEST_REASON_CHARS = 300;

export interface WorkerParts {
  readonly store: Store;
  readonly options: WebhookOptions;
  readonly guard: Guard;
  readonly now: () => number;
  readonly answerLink: ((ask: AnswerAsk) => Promise<AnswerLink>) | undefined;
  readonly report: (webhookId: string, error: unknown) => void;
  /** The receiver has answered 410, and that is stored. */
  readonly disabled: () => void;
}

/** Delivers what waits for one webhook, one call at a time, in order. */
export interface Worker {
  /** There may be something to send. */
  wake(): void;
  /** Cuts a running call off; resolves when nothing runs any more. */
  stop(): Promise<void>;
}

const reasonOf = (error: unknown): string => {
  const { message } = error instanceof Error ? error : new Error(String(error));
  // A failed connection to several addresses has no message of its own.
  const own = error instanceof AggregateError && message === "" ? error.errors.map(String).join("; ") : message;
  return own.slice(0, LONGEST_REASON_CHARS);
};

export function createWorker(webhook: StoredWebhook, parts: WorkerParts): Worker {
  const { store, options, guard, now } = parts;
  const stopping = new AbortController();
  let running: Promise<void> | undefined;
  let again = false;
  let timer: NodeJS.Timeout | undefined;
  // A repeated call carries the link of the first: the secret of a link is in memory only.
  let link: { readonly place: number; readonly answer: AnswerLink } | undefined;

  async function linkOf({ place, session, requestId }: Delivery): Promise<AnswerLink | undefined> {
    if (requestId === undefined || parts.answerLink === undefined) return undefined;
    if (link?.place === place) return link.answer;
    const { id: webhookId, tenant } = webhook;
    const lifeMs = options.answerLinkMs;
    const answer = await parts.answerLink({ webhookId, tenant, sessionId: session, requestId, lifeMs });
    link = { place, answer };
    return answer;
  }

  async function call(delivery: Delivery): Promise<number> {
    // Again at each call: what the operator allows may have changed, and an address in the URL is resolved by nobody.
    const url = guard.check(webhook.url);
    const body = withAnswer(delivery.body, await linkOf(delivery));
    const timestamp = now();
    const headers = {
      "content-type": "application/json",
      "content-length": String(Buffer.byteLength(body)),
      "user-agent": "patchbay-webhooks",
      "patchbay-event-id": delivery.event_id,
      "patchbay-timestamp": String(timestamp),
      "patchbay-signature": sign(webhook.secret, timestamp, body),
    };
    const { lookup } = guard;
    return post({ url, headers, body, lookup, timeoutMs: options.callTimeoutMs, stopping: stopping.signal });
  }

  function judge(delivery: Delivery, answered: { status: number } | { reason: string }): CallResult {
    const status = "status" in answered ? answered.status : undefined;
    const nowMs = now();
    if (status !== undefined && status >= 200 && status < 300) return { status, end: "delivered", nextAtMs: nowMs };
    const reason = "reason" in answered ? answered.reason : `the receiver answered ${status}`;
    const attempt = delivery.attempts + 1;
    const nextAtMs = nowMs + retryDelayMs(attempt, Math.random(), options);
    const isOver = attempt >= options.attempts || nextAtMs - delivery.created_at_ms >= options.maxAgeMs;
    return {
      reason,
      nextAtMs,
      ...(status !== undefined && { status }),
      ...((isOver || status === 410) && { end: "failed" as const }),
    };
  }

  async function send(delivery: Delivery): Promise<void> {
    const answered = await call(delivery).then(
      (status) => ({ status }),
      (error: unknown) => ({ reason: reasonOf(error) }),
    );
    // A call that was cut off is no attempt: it is made again after the restart.
    if (stopping.signal.aborted && !("status" in answered)) return;
    const result = judge(delivery, answered);
    const isGone = result.status === 410;
    await store.write([
      ...saveCall(delivery, result, now(), options.keptLimit),
      ...(isGone ? disableWebhook(webhook.id, now()) : []),
    ]);
    if (isGone) parts.disabled();
  }

  const wakeIn = (ms: number): void => {
    clearTimeout(timer);
    timer = setTimeout(wake, Math.min(ms, LONGEST_TIMER_MS)).unref();
  };

  async function drain(): Promise<void> {
    while (!stopping.signal.aborted) {
      const next = await readNext(store, webhook.id);
      if (next === undefined) return;
      const waitMs = next.next_at_ms - now();
      if (waitMs > 0) return wakeIn(waitMs);
      await send(next);
    }
  }

  async function run(): Promise<void> {
    while (again) {
      again = false;
      await drain();
    }
  }

  function wake(): void {
    if (stopping.signal.aborted) return;
    again = true;
    running ??= run()
      .catch((error: unknown) => {
        if (stopping.signal.aborted) return;
        parts.report(webhook.id, error);
        wakeIn(STORE_RETRY_MS);
      })
      .finally(() => {
        running = undefined;
        if (again) wake();
      });
  }

  return {
    wake,
    async stop() {
      stopping.abort();
      clearTimeout(timer);
      await running;
    },
  };
}
