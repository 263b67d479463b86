import { existsSync } from "node:fs";
import { join } from "node:path";
import { expect } from "vitest";
import { openConnection } from "../../src/store/connection.ts";
import { type Answer, startServer, type TestServer } from "../kit/server.ts";
import { verifies } from "../kit/verifies.ts";

/** A pass of retention after each few milliseconds: with such a bound it removes all that nothing needs. */
const KEEPS_LITTLE = { options: { retentionBytesPerTenant: 1 }, tuning: { retentionEveryMs: 5 } };

const turn = (server: TestServer, id: string, text: string, wait_s = 20) =>
  server.call("POST", `/v1/sessions/${id}/turns`, { body: { text, wait_s } });
const page = (server: TestServer, id: string, after: number) =>
  server.call("GET", `/v1/sessions/${id}/events?after=${after}&limit=1000`);

/** Asks until retention has removed what follows 0; resolves with the first number that is left. */
async function firstLeft(server: TestServer, id: string, atLeast: number): Promise<number> {
  for (;;) {
    const { status, body } = await page(server, id, 0);
    const first = status === 410 ? body.error.details.first_available : 1;
    if (first >= atLeast) return first;
  }
}

verifies(
  "RETENTION",
  "what is too much goes, oldest first: readers are told, numbers go on, and the session works as before",
  async () => {
    await using server = await startServer(KEEPS_LITTLE);
    const { id } = await server.session();
    const first = await turn(server, id, "one");
    expect(first.body.outcome).toBe("completed");
    const { head } = (await server.call("GET", `/v1/sessions/${id}`)).body;
    const left = await firstLeft(server, id, head);

    using reader = await server.socket();
    reader.send({ type: "subscribe", session_id: id, after: 1 });
    await reader.next("subscribed");
    const { body } = await turn(server, id, "two");
    expect(body).toMatchObject({ outcome: "completed", result: { result: "echo: two" } });
    const gap = await reader.next("gap");
    expect(gap).toMatchObject({ session_id: id });
    expect(Number(gap.first_available)).toBeGreaterThanOrEqual(left);
    const event = await reader.next("event");
    expect(Number(event.seq)).toBeGreaterThanOrEqual(Number(gap.first_available));
    const after = (await server.call("GET", `/v1/sessions/${id}`)).body;
    expect(after.head).toBeGreaterThan(head);
    expect(after).toMatchObject({ state: "idle", usage: { turns: 2 } });
  },
);

verifies("RETENTION", "what an open turn, a queued message and an open request need is never removed", async () => {
  await using server = await startServer(KEEPS_LITTLE);
  const { id } = await server.session();
  await turn(server, id, "one");
  const stalled = await turn(server, id, "!stall", 0);
  const queued = await turn(server, id, "after all", 0);
  await firstLeft(server, id, stalled.body.seq);
  const { events } = (await page(server, id, stalled.body.seq - 1)).body;
  const queries = (answer: Answer["body"]) =>
    answer.map((event: { payload: unknown }) => JSON.stringify(event.payload));
  expect(queries(events).some((payload: string) => payload.includes("after all"))).toBe(true);
  using client = await server.socket();
  const interrupt = { type: "control_request", request_id: "i1", request: { subtype: "interrupt" } };
  await client.command({ id: "i", session_id: id, event_type: "control_request", payload: interrupt });
  const again = await server.call("POST", `/v1/sessions/${id}/turns`, { body: { text: "!ask", wait_s: 0 } });
  const asked = async (): Promise<{ request_id: string; seq: number }> => {
    for (;;) {
      const { requests } = (await server.call("GET", `/v1/sessions/${id}/requests`)).body;
      if (requests.length > 0) return requests[0];
    }
  };
  const request = await asked();
  // The turn that asks began after the queued one has run: both messages went through.
  await firstLeft(server, id, queued.body.seq + 1);
  expect(again.status).toBe(202);
  expect((await page(server, id, request.seq - 1)).body.events[0]).toMatchObject({
    seq: request.seq,
    event_type: "request.opened",
  });
  const answer = {
    type: "control_response",
    response: { subtype: "success", request_id: request.request_id, response: { behavior: "deny", message: "no" } },
  };
  expect(
    await client.command({ id: "a", session_id: id, event_type: "control_response", payload: answer }),
  ).toMatchObject({ type: "ack" });
  expect((await turn(server, id, "and on")).body).toMatchObject({
    outcome: "completed",
    result: { result: "echo: and on" },
  });
});

/** Tables of the database that mention a text anywhere. */
function tablesWith(dataDir: string, text: string): string[] {
  const database = openConnection(join(dataDir, "patchbay.db"));
  try {
    const tables = database
      .all("SELECT name FROM sqlite_master WHERE type = 'table'", [])
      .map((row) => String(row["name"]));
    return tables.filter((table) =>
      database
        .all(`SELECT * FROM ${table}`, [])
        .some((row) =>
          Object.values(row).some((value) =>
            (value instanceof Uint8Array ? Buffer.from(value).toString("utf8") : String(value)).includes(text),
          ),
        ),
    );
  } finally {
    database.close();
  }
}

verifies(
  "PURGE",
  "a purge removes log, transcript, folders and every row of the session but the record of who did what",
  async () => {
    await using server = await startServer();
    const headers = { "idempotency-key": "k1" };
    const { id, cwd } = (await server.call("POST", "/v1/sessions", { body: { prompt: "one" }, headers })).body;
    await turn(server, id, "two");
    await server.call("PUT", `/v1/sessions/${id}/policy`, { body: { rules: [], default: "ask" } });
    // A fork keeps the conversation in the store; the fork of the fork shows that its own copy stays.
    const fork = (await server.call("POST", `/v1/sessions/${id}/fork`)).body;
    await turn(server, id, "!ask", 0);
    const folders = [join(server.dataDir, "homes", id), join(server.dataDir, "workspaces", "default", cwd)];
    expect(folders.map(existsSync)).toEqual([true, true]);
    const before = tablesWith(server.dataDir, id);
    for (const table of ["sessions", "events", "commands", "used_ids", "idempotency", "transcript_entries", "audit"])
      expect(before).toContain(table);

    expect((await server.call("DELETE", `/v1/sessions/${id}?purge=true`)).status).toBe(204);
    expect(folders.map(existsSync)).toEqual([false, false]);
    // What the fork's first event says of it stays with the fork.
    await server.call("DELETE", `/v1/sessions/${fork.id}?purge=true`);
    expect(tablesWith(server.dataDir, id)).toEqual(["audit"]);
    expect((await server.call("GET", `/v1/sessions/${id}`)).status).toBe(404);
  },
);
