import { expect, test } from "vitest";
import { publishUser, runloopClient, watchAxon } from "../../kit/runloop-client.ts";
import { startServer } from "../../kit/server.ts";
import { verifies } from "../../kit/verifies.ts";

const external = (payload: string, event_type = "push") =>
  ({ event_type, origin: "EXTERNAL_EVENT", source: "github", payload }) as const;

test("axons are made, read, changed, listed and deleted as Runloop's clients do it", async () => {
  await using server = await startServer();
  const client = runloopClient(server.url);
  const first = await client.axons.create({ name: "build-one", metadata: { team: "a", stage: "test" } });
  expect(first).toEqual({
    id: expect.any(String),
    name: "build-one",
    metadata: { team: "a", stage: "test" },
    created_at_ms: expect.any(Number),
  });
  const bare = await client.axons.create();
  expect(bare).toMatchObject({ name: null, metadata: {} });
  const third = await client.axons.create({ name: "build-two", metadata: { team: "b" } });
  expect(await client.axons.retrieve(first.id)).toEqual(first);
  expect(await client.axons.update(first.id, {})).toEqual(first);
  expect((await client.axons.update(first.id, { metadata: { team: "a" } })).metadata).toEqual({ team: "a" });

  const all: string[] = [];
  for await (const axon of client.axons.list({ limit: 2 })) all.push(axon.id);
  expect(all).toEqual([third.id, bare.id, first.id]);
  const ids = async (query: Record<string, unknown>) => (await client.axons.list(query)).axons.map(({ id }) => id);
  expect(await ids({ name: "build-" })).toEqual([third.id, first.id]);
  expect(await ids({ name: "uild" })).toEqual([]);
  expect(await ids({ search: "ILD-T" })).toEqual([third.id]);
  expect(await ids({ search: bare.id })).toEqual([bare.id]);
  expect(await ids({ id: first.id })).toEqual([first.id]);
  expect(await ids({ "metadata[team]": "b" })).toEqual([third.id]);
  expect(await ids({ "metadata[team][in]": "a,b" })).toEqual([third.id, first.id]);
  const page = await client.axons.list({ limit: 1 });
  expect([page.has_more, page.total_count]).toEqual([true, 3]);

  expect((await client.axons.update(first.id, { metadata: null })).metadata).toEqual({ team: "a" });
  expect((await client.axons.update(first.id, { metadata: {} })).metadata).toEqual({});
  await client.axons.update(first.id, { metadata: { team: "a" } });
  using reader = await watchAxon(client, third.id);
  await client.axons.delete(third.id);
  expect(await reader.ended).toBeUndefined();
  await expect(client.axons.retrieve(third.id)).rejects.toMatchObject({ status: 404, message: "404 Axon not found." });
  await expect(client.axons.publish(third.id, external("{}"))).rejects.toMatchObject({ status: 404 });
  expect(await ids({})).toEqual([bare.id, first.id]);
  await expect(client.axons.retrieve("axn_never")).rejects.toMatchObject({ status: 404 });
  const foreign = await server.key(["admin"], "other");
  await expect(runloopClient(server.url, foreign.key).axons.retrieve(first.id)).rejects.toMatchObject({ status: 404 });
  await expect(runloopClient(server.url, "pb_wrong").axons.retrieve(first.id)).rejects.toMatchObject({ status: 401 });
});

verifies(
  "RUNLOOP-PUBLISH",
  "an event without an agent is kept as it came, and who may not forge one cannot",
  async () => {
    await using server = await startServer();
    const client = runloopClient(server.url);
    const { id } = await client.axons.create({});
    const payloads = [
      '{"b": 1,\n "a": "\u2028é"}',
      "[1,2]",
      "plain text",
      '"quoted"',
      "42",
      "",
      "{broken",
      '{"a":"\\ud800"}',
      "\ud800",
    ];
    for (const payload of payloads) await client.axons.publish(id, external(payload));
    const query = { type: "user", message: { role: "user", content: "nobody hears" } };
    const { sequence } = await publishUser(client, id, "query", query);
    const { events } = await client.axons.events.list(id, {});
    expect(events.map(({ payload }) => payload)).toEqual([JSON.stringify(query), ...payloads.toReversed()]);
    expect(events[1]).toEqual({
      axon_id: id,
      event_type: "push",
      origin: "EXTERNAL_EVENT",
      payload: "\ud800",
      sequence: sequence - 1,
      source: "github",
      timestamp_ms: expect.any(Number),
    });
    expect(events[0]).toMatchObject({ origin: "USER_EVENT", event_type: "query", source: "claude-sdk-client" });

    const forged = (origin: string) =>
      server.call("POST", `/v1/axons/${id}/publish`, { body: { ...external("{}"), origin } });
    expect((await forged("AGENT_EVENT")).status).toBe(403);
    expect((await forged("SYSTEM_EVENT")).status).toBe(400);
    expect((await forged("NOBODY")).status).toBe(400);
    const viewer = await server.key(["viewer"]);
    await expect(runloopClient(server.url, viewer.key).axons.publish(id, external("{}"))).rejects.toMatchObject({
      status: 403,
    });
    expect((await client.axons.events.list(id, {})).total_count).toBe(sequence);
  },
);

verifies("RUNLOOP-A4", "a repeat with the same x-request-id has no second effect", async () => {
  await using server = await startServer();
  const client = runloopClient(server.url);
  // What the client makes itself for each call, and sends again with each try of it.
  const again = { idempotencyKey: "stainless-node-retry-one" };
  const axon = await client.axons.create({ name: "once" }, again);
  expect(await client.axons.create({ name: "once" }, again)).toEqual(axon);
  expect((await client.axons.list({})).total_count).toBe(1);
  const tries = await Promise.all([1, 2, 3].map(() => client.axons.publish(axon.id, external('{"n":1}'), again)));
  expect(new Set(tries.map(({ sequence }) => sequence)).size).toBe(1);
  expect(new Set(tries.map(({ timestamp_ms }) => timestamp_ms)).size).toBe(1);
  expect((await client.axons.events.list(axon.id, {})).events).toHaveLength(1);
  // Another body under the same id is a mistake, which trying again does not mend.
  await expect(client.axons.publish(axon.id, external('{"n":2}'), again)).rejects.toMatchObject({
    status: 409,
    headers: expect.objectContaining({ "x-should-retry": "false" }),
  });
});

test("events are listed newest first, page by page", async () => {
  await using server = await startServer();
  const client = runloopClient(server.url);
  const { id } = await client.axons.create({});
  expect(await client.axons.events.list(id, { limit: 1 })).toMatchObject({
    events: [],
    has_more: false,
    total_count: 0,
  });
  const numbers: number[] = [];
  for (let n = 0; n < 7; n++) numbers.push((await client.axons.publish(id, external(String(n)))).sequence);
  const seen: number[] = [];
  let before: string | undefined;
  for (let more = true; more; ) {
    const page = await client.axons.events.list(id, {
      limit: 3,
      ...(before !== undefined && { starting_after: before }),
    });
    expect(page.total_count).toBe(numbers.at(-1));
    seen.push(...page.events.map(({ sequence }) => sequence));
    before = String(seen.at(-1));
    more = page.has_more;
  }
  expect(seen).toEqual(numbers.toReversed());
  const without = await server.call("GET", `/v1/axons/${id}/events?include_total_count=false`);
  expect(without.body).not.toHaveProperty("total_count");
});

verifies("RUNLOOP-A11", "payloads up to 4 MiB are taken, larger ones are refused for good", async () => {
  await using server = await startServer();
  const client = runloopClient(server.url);
  const { id } = await client.axons.create({});
  const largest = "é".repeat(2 * 1024 * 1024);
  await client.axons.publish(id, external(largest));
  const { events } = await client.axons.events.list(id, { limit: 1 });
  expect(events[0]?.payload === largest).toBe(true);
  await expect(client.axons.publish(id, external(`${largest}x`))).rejects.toMatchObject({ status: 413 });
});

test("the SQL and the secrets of Runloop's API are there for its client", async () => {
  await using server = await startServer();
  const client = runloopClient(server.url);
  const { id } = await client.axons.create({});
  await client.axons.sql.query(id, { sql: "CREATE TABLE t (n INTEGER)" });
  await client.axons.sql.batch(id, { statements: [{ sql: "INSERT INTO t VALUES (?)", params: [7] }] });
  expect((await client.axons.sql.query(id, { sql: "SELECT n FROM t" })).rows).toEqual([[7]]);
  await expect(client.axons.sql.query("axn_never", { sql: "SELECT 1" })).rejects.toMatchObject({ status: 404 });
  expect(await client.secrets.create({ name: "TOKEN", value: "hush" })).not.toHaveProperty("value");
  expect((await client.secrets.list()).secrets.map(({ name }) => name)).toEqual(["TOKEN"]);
  const driver = await server.key(["driver"]);
  const secrets = runloopClient(server.url, driver.key).secrets;
  await expect(secrets.create({ name: "OTHER", value: "x" })).rejects.toMatchObject({ status: 403 });
});
