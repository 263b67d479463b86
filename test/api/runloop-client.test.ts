import { getCACertificates, setDefaultCACertificates } from "node:tls";
import type { Runloop } from "@runloop/api-client";
import { afterAll, beforeAll, describe, expect } from "vitest";
import { runloopClient } from "../kit/runloop-client.ts";
import { startServer } from "../kit/server.ts";
import { TEST_CERTIFICATE, TEST_CERTIFICATE_KEY } from "../kit/tls.ts";
import { verifies } from "../kit/verifies.ts";

const trusted = getCACertificates("default");
beforeAll(() => setDefaultCACertificates([...trusted, TEST_CERTIFICATE]));
afterAll(() => setDefaultCACertificates(trusted));

async function tryAxonSql(client: Runloop): Promise<void> {
  const { id } = await client.axons.create({});
  await client.axons.sql.query(id, { sql: "CREATE TABLE tasks (id INTEGER PRIMARY KEY, name TEXT)" });
  const { results } = await client.axons.sql.batch(id, {
    statements: [
      { sql: "INSERT INTO tasks (name) VALUES (?), (?)", params: ["one", "two"] },
      { sql: "SELECT * FROM tasks WHERE id = ?", params: [2] },
    ],
  });
  expect(results.map(({ success }) => success?.rows)).toEqual([[], [[2, "two"]]]);
  await expect(client.axons.sql.query(id, { sql: "ATTACH 'x' AS y" })).rejects.toMatchObject({
    status: 400,
    message: expect.stringContaining("ATTACH and VACUUM are not served"),
  });
  await client.axons.delete(id);
  await expect(client.axons.sql.query(id, { sql: "SELECT 1" })).rejects.toMatchObject({ status: 404 });
}

async function trySecrets(client: Runloop): Promise<void> {
  const made = await client.secrets.create({ name: "DATABASE_PASSWORD", value: "not to be seen" });
  const updated = await client.secrets.update(made.name, { value: "not to be seen either" });
  expect(await client.secrets.retrieve(made.name)).toEqual(updated);
  const listed = await client.secrets.list({ limit: 10 });
  expect(listed).toMatchObject({ secrets: [{ id: made.id }], has_more: false, total_count: 1 });
  expect(JSON.stringify([made, updated, listed])).not.toContain("not to be seen");
  await client.secrets.delete(made.name);
  expect((await client.secrets.list()).secrets).toEqual([]);
}

describe.each([
  { over: "h2c with prior knowledge", options: {} },
  { over: "TLS with ALPN", options: { tlsCert: TEST_CERTIFICATE, tlsKey: TEST_CERTIFICATE_KEY } },
])("Runloop's client 1.32.0, over $over", ({ options }) => {
  verifies("HTTP2", "A1: it finds the port that others use, and leaves it without holding up its end", async () => {
    const server = await startServer({ options });
    const client = runloopClient(server.url);
    await tryAxonSql(client);
    await trySecrets(client);
    const started = performance.now();
    await server[Symbol.asyncDispose]();
    expect(performance.now() - started).toBeLessThan(3_000);
  });
});
