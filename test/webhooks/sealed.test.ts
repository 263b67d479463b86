import { expect, test } from "vitest";
import { createSealer } from "../../src/store/seal.ts";
import { expectedSignature, startReceiver } from "../kit/webhook-receiver.ts";
import { openWebhooks, type WebhookHost } from "./host.ts";

const SECRET = "a-secret-of-the-receiver";
const none = () => [];
const stored = ({ webhooks }: WebhookHost) => webhooks.store.read("SELECT id, secret, sealed FROM webhooks");

test("a signing secret is encrypted in the database, and signs after a restart too", async () => {
  await using receiver = await startReceiver();
  await using first = await openWebhooks();
  await first.webhooks.create("default", { url: receiver.url, secret: SECRET }, none);
  const [row] = await stored(first);
  expect(row).toMatchObject({ secret: "", sealed: expect.stringMatching(/^v1\./) });
  await using second = await first.reopen();
  await second.tell(1);
  const [call] = await receiver.count(1);
  if (call === undefined) expect.fail("there is no call");
  expect(call.headers["patchbay-signature"]).toBe(expectedSignature(SECRET, call));
  expect(await stored(second)).toEqual([row]);
});

test("secrets that an older version left in plain are sealed at start, those of an older key sealed anew", async () => {
  const one = "the-first-key-of-thirty-two-characters";
  const two = "another-key-which-came-a-year-later";
  await using receiver = await startReceiver();
  await using first = await openWebhooks({ sealer: createSealer([one]) });
  await first.webhooks.create("default", { url: receiver.url, secret: "made-by-a-newer-version" }, none);
  const { id } = await first.webhooks.create("default", { url: receiver.url, secret: SECRET }, none);
  const plain = "UPDATE webhooks SET secret = ?, sealed = NULL WHERE id = ?";
  await first.webhooks.store.write([{ sql: plain, params: [SECRET, id] }]);
  await using second = await first.reopen({ sealer: createSealer([two, one]) });
  const [webhook] = (await stored(second)).filter((row) => row["id"] === id);
  expect(webhook).toMatchObject({ secret: "", sealed: expect.stringMatching(/^v1\./) });
  // The old key is not needed any more.
  await using third = await second.reopen({ sealer: createSealer([two]) });
  await third.tell(1);
  for (const call of await receiver.count(2)) {
    const signatures = [SECRET, "made-by-a-newer-version"].map((secret) => expectedSignature(secret, call));
    expect(signatures).toContain(call.headers["patchbay-signature"]);
  }
  expect(JSON.stringify(await third.webhooks.list("default"))).not.toMatch(/sealed|secret/);
});
