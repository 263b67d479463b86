import { randomUUID } from "node:crypto";
import { rmSync } from "node:fs";
import { join } from "node:path";
import { expect } from "vitest";
import { type Answer, startServer, type TestServer } from "../kit/server.ts";
import { verifies } from "../kit/verifies.ts";

interface Envelope {
  readonly event_type: string;
  readonly payload: { readonly [key: string]: unknown };
}

/** A turn of the fake agent; its uuid is in the conversation then. */
async function turn(server: TestServer, id: string, text: string, uuid: string = randomUUID()): Promise<string> {
  const message = { type: "user", uuid, message: { role: "user", content: text } };
  const answer = await server.call("POST", `/v1/sessions/${id}/turns`, { body: { message, wait_s: 20 } });
  expect([answer.status, answer.body?.outcome]).toEqual([200, "completed"]);
  return String(answer.body.result.result ?? "");
}

/** How the session's agent was started, and what it knows of its surroundings. */
async function dump(server: TestServer, id: string): Promise<{ argv: string[]; cwd: string }> {
  return JSON.parse(await turn(server, id, "!dump"));
}

async function eventsOf(server: TestServer, id: string): Promise<Envelope[]> {
  return (await server.call("GET", `/v1/sessions/${id}/events?limit=1000`)).body.events;
}

const flagOf = (argv: readonly string[], flag: string): string | undefined =>
  argv.find((word) => word.startsWith(`${flag}=`))?.slice(flag.length + 1);
const fork = (
  server: TestServer,
  id: string,
  body?: unknown,
  more: { key?: string; headers?: Record<string, string> } = {},
) => server.call("POST", `/v1/sessions/${id}/fork`, { body, ...more });
const errorOf = ({ status, body }: Answer) => [status, body?.error?.code, body?.error?.details?.field];

verifies(
  "FORK",
  "a fork is a new session that goes on with its parent's conversation; the parent stays as it is",
  async () => {
    await using server = await startServer();
    const parent = await server.session({ agent: { model: "opus" }, name: "first", metadata: { a: "b" } });
    await turn(server, parent.id, "one");
    const before = (await server.call("GET", `/v1/sessions/${parent.id}`)).body;
    const made = await fork(server, parent.id, { name: "second" });
    expect(made.status).toBe(201);
    expect(made.headers.get("location")).toBe(`/v1/sessions/${made.body.id}`);
    expect(made.body).toMatchObject({
      tenant: "default",
      name: "second",
      metadata: {},
      state: "hibernated",
      head: 1,
      agent: { model: "opus" },
      cwd: `sessions/${made.body.id}`,
      open_requests: [],
      usage: { cost_usd: 0, turns: 0 },
    });
    const { argv, cwd } = await dump(server, made.body.id);
    expect(cwd.endsWith(made.body.cwd)).toBe(true);
    expect(flagOf(argv, "--resume")).toBe(before.agent.cli_session_id);
    expect(argv).toContain("--fork-session");
    const own = (await server.call("GET", `/v1/sessions/${made.body.id}`)).body.agent.cli_session_id;
    expect(own).not.toBe(before.agent.cli_session_id);
    expect(flagOf(argv, "--session-id")).toBe(own);
    expect((await eventsOf(server, made.body.id))[0]).toMatchObject({
      seq: 1,
      event_type: "session.forked",
      origin: "SYSTEM_EVENT",
      source: "broker",
      payload: { session_id: parent.id },
    });
    const after = (await server.call("GET", `/v1/sessions/${parent.id}`)).body;
    expect([after.head, after.agent.cli_session_id]).toEqual([before.head, before.agent.cli_session_id]);
    expect((await eventsOf(server, parent.id)).some((event) => event.event_type === "session.forked")).toBe(false);
  },
);

verifies("FORK", "`at` is a message of the conversation; anything else is refused with the field's name", async () => {
  await using server = await startServer();
  const parent = await server.session();
  const at = randomUUID();
  await turn(server, parent.id, "one", at);
  await turn(server, parent.id, "two");
  const made = await fork(server, parent.id, { at: at.toUpperCase() });
  expect(made.status).toBe(201);
  expect((await eventsOf(server, made.body.id))[0]?.payload).toEqual({ session_id: parent.id, at });
  expect(errorOf(await fork(server, parent.id, { at: randomUUID() }))).toEqual([400, "bad_request", "at"]);
  expect(errorOf(await fork(server, parent.id, { at: "yesterday" }))).toEqual([400, "bad_request", "at"]);
  expect(errorOf(await fork(server, parent.id, { until: at }))).toEqual([400, "bad_request", "until"]);
  expect(errorOf(await fork(server, parent.id, { cwd: "../outside" }))[1]).toBe("cwd_refused");
  expect(errorOf(await fork(server, "nobody", {}))).toEqual([404, "not_found", undefined]);
});

verifies(
  "FORK",
  "a parent may run, have ended or failed, and its files may be gone; one without a turn forks into an empty session",
  async () => {
    await using server = await startServer();
    const started = async (): Promise<string> => {
      const { id } = await server.session();
      await turn(server, id, "one");
      return id;
    };
    const forksTo = async (id: string): Promise<string | undefined> => {
      const made = await fork(server, id);
      expect(made.status).toBe(201);
      return flagOf((await dump(server, made.body.id)).argv, "--resume");
    };
    const running = await started();
    await server.call("POST", `/v1/sessions/${running}/turns`, { body: { text: "!stall" } });
    expect(await forksTo(running)).toBeDefined();

    const ended = await started();
    await server.call("DELETE", `/v1/sessions/${ended}`);
    expect(await forksTo(ended)).toBeDefined();

    const gone = await started();
    const first = await fork(server, gone);
    await server.call("DELETE", `/v1/sessions/${gone}`);
    rmSync(join(server.dataDir, "homes", gone), { recursive: true });
    expect(await forksTo(gone)).toBeDefined();
    // The one that was forked before has a copy of its own, and needs nobody.
    await server.call("DELETE", `/v1/sessions/${gone}?purge=true`);
    expect(flagOf((await dump(server, first.body.id)).argv, "--resume")).toBeDefined();

    const { id: empty } = await server.session();
    expect(await forksTo(empty)).toBeUndefined();
  },
);

verifies("FORK", "a key for the call, an Idempotency-Key, a record", async () => {
  await using server = await startServer();
  const parent = await server.session();
  await turn(server, parent.id, "one");
  const driver = await server.key(["driver"]);
  for (const role of ["viewer", "approver"] as const) {
    const { key } = await server.key([role]);
    expect(errorOf(await fork(server, parent.id, {}, { key }))).toEqual([403, "forbidden", undefined]);
  }
  const narrow = await server.call("POST", "/v1/keys", { body: { roles: ["driver"], session_id: parent.id } });
  expect(errorOf(await fork(server, parent.id, {}, { key: narrow.body.key }))[0]).toBe(403);

  const headers = { "idempotency-key": "k1" };
  const [one, two] = await Promise.all(
    [1, 2].map(() => fork(server, parent.id, { name: "x" }, { key: driver.key, headers })),
  );
  expect([one?.status, two?.status]).toEqual([201, 201]);
  expect(two?.body.id).toBe(one?.body.id);
  const other = await fork(server, parent.id, { name: "y" }, { key: driver.key, headers });
  expect(errorOf(other)).toEqual([409, "id_reused", "Idempotency-Key"]);

  const { entries: all } = (await server.call("GET", `/v1/audit?session_id=${parent.id}&kind=session`)).body;
  const entries = all.filter(({ subtype }: { subtype: string }) => subtype === "fork");
  expect(entries[0]).toMatchObject({
    subtype: "fork",
    actor: { id: driver.id },
    decision: { session_id: one?.body.id },
  });
});

verifies(
  "FORK",
  "a policy of the parent's own holds for what comes of it, over a restart too, and does not widen another folder",
  async () => {
    await using server = await startServer();
    const parent = await server.session();
    await turn(server, parent.id, "one");
    const policy = { rules: [{ id: "all", effect: "allow", tools: ["*"] }], default: "deny" };
    await server.call("PUT", `/v1/sessions/${parent.id}/policy`, { body: policy });
    const driver = await server.key(["driver"]);
    const resume_from = { session_id: parent.id };
    const made = [
      await fork(server, parent.id, {}, { key: driver.key }),
      await server.call("POST", "/v1/sessions", { body: { resume_from }, key: driver.key }),
    ];
    for (const { body } of made)
      expect((await server.call("GET", `/v1/sessions/${body.id}/policy`)).body).toEqual(policy);
    expect(errorOf(await fork(server, parent.id, { cwd: "shop" }, { key: driver.key }))[1]).toBe("forbidden");
    const elsewhere = await server.call("POST", "/v1/sessions", {
      body: { resume_from, cwd: "shop" },
      key: driver.key,
    });
    expect(errorOf(elsewhere)[1]).toBe("forbidden");
    expect((await fork(server, parent.id, { cwd: "shop" })).status).toBe(201);

    const mild = await server.session({ agent: { permission_mode: "acceptEdits" } });
    expect(errorOf(await fork(server, mild.id, { cwd: "shop" }, { key: driver.key }))[1]).toBe("forbidden");
    expect((await fork(server, mild.id, {}, { key: driver.key })).status).toBe(201);
  },
);

verifies(
  "FORK",
  "resume_from makes a session of other options that begins with the history, in the same tenant only",
  async () => {
    await using server = await startServer();
    const parent = await server.session({ agent: { model: "opus" }, cwd: "shop" });
    const at = randomUUID();
    await turn(server, parent.id, "one", at);
    const create = (body: unknown, key?: string) => server.call("POST", "/v1/sessions", { body, ...(key && { key }) });
    const made = await create({
      agent: { model: "sonnet" },
      resume_from: { session_id: parent.id, at },
      prompt: "!dump",
    });
    expect(made.body).toMatchObject({ agent: { model: "sonnet" }, cwd: `sessions/${made.body.id}` });
    const { argv } = await dump(server, made.body.id);
    expect(flagOf(argv, "--resume")).toBe(
      (await server.call("GET", `/v1/sessions/${parent.id}`)).body.agent.cli_session_id,
    );
    expect(flagOf(argv, "--model")).toBe("sonnet");
    // A fork without options has its parent's, and stays in the folder that its maker named.
    expect((await fork(server, parent.id)).body).toMatchObject({ agent: { model: "opus" }, cwd: "shop" });

    const from = (session_id: string, more = {}) => ({ resume_from: { session_id, ...more } });
    expect(errorOf(await create(from(parent.id, { at: "x" })))).toEqual([400, "bad_request", "resume_from.at"]);
    expect(errorOf(await create(from(parent.id, { at: randomUUID() })))[0]).toBe(400);
    const stranger = await server.key(["admin"], "other");
    const foreign = await create(from(parent.id), stranger.key);
    expect(errorOf(foreign)[0]).toBe(404);
    expect(foreign.body).toEqual((await create(from("ses_never"), stranger.key)).body);
    // An operator sees every tenant's sessions; a conversation still stays in its own.
    const theirs = (await server.call("POST", "/v1/sessions", { body: {}, key: stranger.key })).body;
    expect(errorOf(await create(from(theirs.id)))[0]).toBe(404);
    expect((await fork(server, theirs.id)).body).toMatchObject({ tenant: "other" });
  },
);
