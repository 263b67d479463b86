import { once } from "node:events";
import { createServer } from "node:net";
import { expect } from "vitest";
import { BrokerError } from "../../src/protocol/problems.ts";
import type { DeliveryView } from "../../src/protocol/webhooks.ts";
import { verifies } from "../kit/verifies.ts";
import { answering, expectedSignature, startReceiver } from "../kit/webhook-receiver.ts";
import { openWebhooks, type WebhookHost } from "./host.ts";

const SECRET = "a-secret-of-the-receiver";
const none = () => [];
const make = (host: WebhookHost, url: string, more: object = {}) =>
  host.webhooks.create("default", { url, secret: SECRET, ...more }, none);
const seqOf = ({ body }: { body: { seq: number } }): number => body.seq;

/** The deliveries of a webhook once they fit: the receiver has its call before the outcome is stored. */
async function deliveriesOnce(
  host: WebhookHost,
  id: string,
  fits: (all: readonly DeliveryView[]) => boolean,
): Promise<readonly DeliveryView[]> {
  for (;;) {
    const { deliveries } = await host.webhooks.deliveries("default", id, { after: 0, limit: 200 });
    if (fits(deliveries)) return deliveries;
    await new Promise(setImmediate);
  }
}
const allIn = (state: string) => (all: readonly DeliveryView[]) =>
  all.length > 0 && all.every((delivery) => delivery.state === state);

verifies("WEBHOOKS", "each wanted event comes once, in order, as its envelope, signed", async () => {
  await using receiver = await startReceiver();
  await using host = await openWebhooks();
  const { id } = await make(host, receiver.url, { events: ["turn.completed", "turn.failed"] });
  for (let seq = 1; seq <= 50; seq += 1) {
    await host.tell(seq, seq % 5 === 0 ? "session.state" : "turn.completed");
    await host.tell(1_000 + seq, "turn.completed", {}, "another-tenant");
  }
  const calls = await receiver.count(40);
  await deliveriesOnce(host, id, allIn("delivered"));
  expect(calls.map(seqOf)).toEqual(Array.from({ length: 50 }, (_, index) => index + 1).filter((seq) => seq % 5 !== 0));
  const [first] = calls;
  if (first === undefined) expect.fail("there is no call");
  expect(Object.keys(first.body)).toEqual(
    "session_id,seq,event_type,origin,source,timestamp_ms,turn_id,payload".split(","),
  );
  expect(first.body).toMatchObject({ session_id: "s", origin: "SYSTEM_EVENT", source: "broker", turn_id: "t" });
  expect(first.headers).toMatchObject({ "content-type": "application/json", "patchbay-event-id": "s:1" });
  for (const call of calls) expect(call.headers["patchbay-signature"]).toBe(expectedSignature(SECRET, call));
  expect(expectedSignature("another", first)).not.toBe(first.headers["patchbay-signature"]);
});

verifies(
  "WEBHOOKS",
  "a failed call is made again, under its id and before anything behind it, until it succeeds",
  async () => {
    const first = await startReceiver(answering(500));
    await using host = await openWebhooks();
    const { id } = await make(host, first.url);
    await host.tell(1);
    await host.tell(2);
    await first.count(3);
    expect(new Set(first.received.map(({ eventId }) => eventId))).toEqual(new Set(["s:1"]));
    // Now nobody listens there.
    await first.close();
    const [waiting] = await deliveriesOnce(host, id, ([head]) => head?.reason?.includes("ECONNREFUSED") ?? false);
    expect(waiting).toMatchObject({ state: "pending", next_at_ms: expect.any(Number) });
    await using second = await startReceiver(answering(204), first.port);
    await second.count(2);
    expect(second.received.map(({ eventId }) => eventId)).toEqual(["s:1", "s:2"]);
    const [done, next] = await deliveriesOnce(host, id, allIn("delivered"));
    expect(done).toMatchObject({ event_id: "s:1", status: 204, done_at_ms: expect.any(Number) });
    expect(done?.attempts).toBeGreaterThan(3);
    expect(next?.attempts).toBe(1);
  },
);

verifies(
  "WEBHOOKS",
  "after its last try, or at its age, a delivery has failed and says why, and the next one goes",
  async () => {
    await using receiver = await startReceiver((response, { eventId }) =>
      answering(eventId === "s:2" ? 204 : 503)(response, receiver.received[0] ?? expect.fail("none")),
    );
    await using host = await openWebhooks({ options: { attempts: 3 } });
    const { id } = await make(host, receiver.url);
    await host.tell(1);
    await host.tell(2);
    await deliveriesOnce(host, id, ([, second]) => second?.state === "delivered");
    expect(receiver.received.map(({ eventId }) => eventId)).toEqual(["s:1", "s:1", "s:1", "s:2"]);
    const [failed] = await deliveriesOnce(host, id, () => true);
    expect(failed).toMatchObject({ state: "failed", attempts: 3, status: 503, reason: "the receiver answered 503" });
    await using old = await openWebhooks({ options: { maxAgeMs: 0 } });
    const aged = await make(old, receiver.url);
    await old.tell(3);
    expect(await deliveriesOnce(old, aged.id, allIn("failed"))).toMatchObject([{ attempts: 1 }]);
  },
);

verifies(
  "WEBHOOKS",
  "a restart resumes: nothing is lost, what may have arrived comes again under the same id",
  async () => {
    // It takes the call and does not answer.
    await using receiver = await startReceiver(() => undefined);
    const before = await openWebhooks();
    const { id } = await make(before, receiver.url);
    for (const seq of [1, 2, 3]) await before.tell(seq);
    await receiver.count(1);
    receiver.react(answering(200));
    await using host = await before.reopen();
    await host.tell(4);
    const deliveries = await deliveriesOnce(host, id, (all) => all.length === 4 && allIn("delivered")(all));
    expect(receiver.received.map(({ eventId }) => eventId)).toEqual(["s:1", "s:1", "s:2", "s:3", "s:4"]);
    // A call that was cut off is no attempt.
    expect(deliveries.map(({ attempts, place }) => [attempts, place])).toEqual([
      [1, 1],
      [1, 2],
      [1, 3],
      [1, 4],
    ]);
    for (const call of receiver.received)
      expect(call.headers["patchbay-signature"]).toBe(expectedSignature(SECRET, call));
  },
);

verifies(
  "WEBHOOKS",
  "410 disables: what waits has failed, and nothing more is queued, over a restart too",
  async () => {
    await using receiver = await startReceiver(answering(410));
    const before = await openWebhooks();
    const { id } = await make(before, receiver.url);
    await Promise.all([before.tell(1), before.tell(2)]);
    await deliveriesOnce(before, id, (all) => all.length === 2 && allIn("failed")(all));
    expect(receiver.received).toHaveLength(1);
    await using host = await before.reopen();
    await host.tell(3);
    const [webhook] = await host.webhooks.list("default");
    expect(webhook).toMatchObject({ id, disabled_at_ms: expect.any(Number), queued: 0 });
    expect(await deliveriesOnce(host, id, () => true)).toMatchObject([
      { status: 410, reason: "the receiver answered 410" },
      { reason: "the webhook was disabled", attempts: 0 },
    ]);
  },
);

verifies("WEBHOOKS", "the queue is bounded: the oldest is dropped and counted, the newest arrive", async () => {
  await using receiver = await startReceiver(answering(500));
  await using host = await openWebhooks({ options: { queueLimit: 5 } });
  const { id } = await make(host, receiver.url);
  for (let seq = 1; seq <= 20; seq += 1) await host.tell(seq);
  expect(await host.webhooks.list("default")).toMatchObject([{ queued: 5, dropped: 15 }]);
  receiver.react(answering(204));
  const deliveries = await deliveriesOnce(host, id, allIn("delivered"));
  expect(deliveries.map(({ event_id }) => event_id)).toEqual(["s:16", "s:17", "s:18", "s:19", "s:20"]);
  expect(await host.webhooks.list("default")).toMatchObject([{ queued: 0, dropped: 15 }]);
});

verifies("WEBHOOKS", "finished deliveries stay visible, the newest ones", async () => {
  await using receiver = await startReceiver();
  await using host = await openWebhooks({ options: { keptLimit: 3 } });
  const { id } = await make(host, receiver.url);
  for (let seq = 1; seq <= 6; seq += 1) {
    await host.tell(seq);
    await deliveriesOnce(host, id, (all) => all.at(-1)?.event_id === `s:${seq}` && allIn("delivered")(all));
  }
  const { deliveries, next } = await host.webhooks.deliveries("default", id, { after: 0, limit: 2 });
  expect({ places: deliveries.map(({ place }) => place), next }).toEqual({ places: [4, 5], next: 5 });
  expect((await host.webhooks.deliveries("default", id, { after: next, limit: 2 })).deliveries).toHaveLength(1);
});

verifies(
  "WEBHOOKS",
  "a redirect is not followed, an answer without end is not read, a silent receiver is left",
  async () => {
    await using target = await startReceiver();
    await using receiver = await startReceiver(answering(302, { location: target.url }));
    await using host = await openWebhooks({ options: { attempts: 1, callTimeoutMs: 300 } });
    const { id } = await make(host, receiver.url);
    await host.tell(1);
    expect(await deliveriesOnce(host, id, allIn("failed"))).toMatchObject([{ status: 302 }]);
    expect(target.received).toEqual([]);
    const written = Promise.withResolvers<number>();
    receiver.react((response) => {
      response.writeHead(200);
      const chunk = Buffer.alloc(64 * 1024);
      let bytes = 0;
      const pour = (): void => {
        do bytes += chunk.length;
        while (response.write(chunk));
      };
      response.on("drain", pour).on("close", () => written.resolve(bytes));
      pour();
    });
    await host.tell(2);
    await deliveriesOnce(host, id, ([, second]) => second?.state === "delivered");
    expect(await written.promise).toBeLessThan(32 * 1024 * 1024);
    receiver.react(() => undefined);
    await host.tell(3);
    const [, , silent] = await deliveriesOnce(host, id, (all) => all[2]?.state === "failed");
    expect(silent?.reason).toBe("no answer within 300 ms");
  },
);

verifies("WEBHOOKS", "a name that turns to a private address between two calls leads nowhere", async () => {
  await using receiver = await startReceiver();
  let address = "93.184.216.34";
  const lookups: string[] = [];
  await using host = await openWebhooks({
    allowedHosts: [],
    options: { attempts: 1 },
    resolve: async (name) => {
      lookups.push(name);
      return [{ address, family: 4 }];
    },
  });
  const { id } = await make(host, `https://rebound.example:${receiver.port}/`);
  address = "127.0.0.1";
  await host.tell(1);
  const [failed] = await deliveriesOnce(host, id, allIn("failed"));
  expect(failed?.reason).toContain("is not on the public internet");
  expect(lookups).toEqual(["rebound.example", "rebound.example"]);
  expect(receiver.received).toEqual([]);
});

verifies("WEBHOOKS", "the connection goes to the address that was checked", async () => {
  await using receiver = await startReceiver();
  await using host = await openWebhooks({
    allowedHosts: ["hooks.intranet"],
    resolve: async () => [{ address: "127.0.0.1", family: 4 }],
  });
  await make(host, `http://hooks.intranet:${receiver.port}/`);
  await host.tell(1);
  const [call] = await receiver.count(1);
  expect(call?.headers.host).toBe(`hooks.intranet:${receiver.port}`);
});

verifies("WEBHOOKS", "a host that is no longer listed is called no more", async () => {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  let calls = 0;
  server.on("connection", () => {
    calls += 1;
  });
  const address = server.address();
  const port = typeof address === "object" && address !== null ? address.port : 0;
  const allowedHosts = ["127.0.0.1"];
  const before = await openWebhooks({ allowedHosts, options: { attempts: 1 } });
  const { id } = await make(before, `http://127.0.0.1:${port}/`);
  allowedHosts.pop();
  await using host = await before.reopen();
  await host.tell(1);
  expect(await deliveriesOnce(host, id, allIn("failed"))).toMatchObject([{ reason: expect.stringContaining("https") }]);
  expect(calls).toBe(0);
  server.close();
});

verifies("WEBHOOKS", "an event over the limit keeps the short fields of its payload", async () => {
  await using receiver = await startReceiver();
  await using host = await openWebhooks({ options: { bodyLimitBytes: 2_000 } });
  await make(host, receiver.url);
  const payload = { request_id: "r", kind: "permission", request: { input: { command: "x".repeat(3_000) } } };
  await host.tell(1, "request.opened", payload);
  const [call] = await receiver.count(1);
  expect(call?.body.payload).toEqual({ request_id: "r", kind: "permission", truncated: true });
});

verifies(
  "WEBHOOKS",
  "twenty a tenant, however many are made at once; a removed one makes room and gets nothing more",
  async () => {
    await using receiver = await startReceiver(answering(500));
    await using host = await openWebhooks();
    const made = await Promise.allSettled(Array.from({ length: 23 }, () => make(host, receiver.url)));
    const refused = made.flatMap((one) =>
      one.status === "rejected" && one.reason instanceof BrokerError ? [one.reason.code] : [],
    );
    expect(refused).toEqual(["rate_limited", "rate_limited", "rate_limited"]);
    expect(await host.webhooks.list("another")).toEqual([]);
    await host.tell(1);
    const all = await host.webhooks.list("default");
    for (const { id } of all) await host.webhooks.remove("default", id, none);
    const calls = receiver.received.length;
    await host.tell(2);
    expect(await host.webhooks.list("default")).toEqual([]);
    expect(receiver.received).toHaveLength(calls);
    await make(host, receiver.url);
  },
);
