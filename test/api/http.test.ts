import { connect as connectTcp } from "node:net";
import { expect, test } from "vitest";
import { PROBLEMS, type ProblemCode } from "../../src/protocol/problems.ts";
import { type Answer, startServer } from "../kit/server.ts";
import { verifies } from "../kit/verifies.ts";

/** Checks status and code against the table. */
function expectProblem(answer: Answer, code: ProblemCode, field?: string): void {
  expect({ status: answer.status, code: answer.body?.error?.code }).toEqual({ status: PROBLEMS[code].status, code });
  expect(answer.body.error.retry).toBe(PROBLEMS[code].retry);
  if (field !== undefined) expect(answer.body.error.details.field).toBe(field);
}

verifies("HTTP-ERRORS", "every way to ask wrongly is answered from one table", async () => {
  await using server = await startServer();
  const { id } = await server.session();
  const post = (path: string, body: unknown) => server.call("POST", path, { body });
  expectProblem(await server.call("GET", "/v1/nothing"), "not_found");
  expectProblem(await server.call("PUT", "/v1/sessions"), "not_found");
  expectProblem(await server.call("GET", "/v1/sessions/nobody"), "not_found");
  expectProblem(await server.call("POST", "/v1/sessions", { raw: "{" }), "bad_request", "body");
  expectProblem(await server.call("POST", "/v1/sessions", { raw: '{"__proto__":{"a":1}}' }), "bad_request", "body");
  expectProblem(
    await server.call("POST", "/v1/sessions", { raw: Buffer.from([0x7b, 0xff, 0x7d]) }),
    "bad_request",
    "body",
  );
  expectProblem(
    await server.call("POST", "/v1/sessions", { raw: "x", headers: { "content-type": "text/plain" } }),
    "unsupported_media_type",
  );
  expectProblem(await post("/v1/sessions", { nme: "typo" }), "bad_request", "nme");
  expectProblem(await post("/v1/sessions", [1]), "bad_request");
  expectProblem(await post("/v1/sessions", { cwd: "../outside" }), "cwd_refused");
  expectProblem(
    await post("/v1/sessions", { agent: { args: ["--dangerously-load-development-channels"] } }),
    "agent_arg_refused",
  );
  expectProblem(
    await post(`/v1/sessions/${id}/commands`, { id: "1", event_type: "sing", payload: {} }),
    "bad_request",
    "event_type",
  );
  expectProblem(
    await post(`/v1/sessions/${id}/commands`, {
      id: "1",
      event_type: "query",
      payload: { message: { role: "user", content: [{ type: "tool_result" }] } },
    }),
    "bad_request",
  );
  expectProblem(
    await post(`/v1/sessions/${id}/commands`, { id: "", event_type: "query", payload: { text: "x" } }),
    "bad_request",
    "id",
  );
  expectProblem(await post(`/v1/sessions/${id}/turns`, { text: "x", message: {} }), "bad_request", "text");
  expectProblem(await post(`/v1/sessions/${id}/turns`, {}), "bad_request", "text");
  expectProblem(
    await server.call("PATCH", `/v1/sessions/${id}`, { body: { metadata: { a: 1 } } }),
    "bad_request",
    "metadata.a",
  );
  expectProblem(await server.call("GET", `/v1/sessions/${id}/events?after=99`), "cursor_ahead");
  for (const query of [
    "after=-1",
    "after=1e3",
    "after=1&after=2",
    "limit=0",
    "limit=1001",
    "limit=x",
    "afte=1",
    "__proto__=1",
  ]) {
    expectProblem(await server.call("GET", `/v1/sessions/${id}/events?${query}`), "bad_request");
  }
  const answerTo = { response: { subtype: "success", request_id: "never", response: { behavior: "allow" } } };
  expectProblem(
    await post(`/v1/sessions/${id}/commands`, { id: "2", event_type: "control_response", payload: answerTo }),
    "request_unknown",
  );
  expectProblem(
    await server.call("GET", "/v1/sessions", { headers: { "idempotency-key": "x" }, key: null }),
    "unauthenticated",
  );
  expectProblem(await server.call("GET", "/v1/ws"), "bad_request");
});

verifies("HTTP-ERRORS", "bodies have their limits: 1 MiB, and 32 MiB for a query only", async () => {
  await using server = await startServer();
  const { id } = await server.session();
  const mebibytes = (count: number) => "x".repeat(count * 1024 * 1024);
  const control = {
    id: "big",
    event_type: "control_request",
    payload: { request_id: "r", request: { subtype: "interrupt", fill: mebibytes(2) } },
  };
  expectProblem(await server.call("POST", `/v1/sessions/${id}/commands`, { body: control }), "too_large");
  expectProblem(await server.call("PATCH", `/v1/sessions/${id}`, { body: { name: mebibytes(2) } }), "too_large");
  expectProblem(await server.call("POST", `/v1/sessions/${id}/turns`, { body: { text: mebibytes(33) } }), "too_large");
  const query = { id: "q", event_type: "query", payload: { text: mebibytes(3) } };
  const accepted = await server.call("POST", `/v1/sessions/${id}/commands`, { body: query });
  expect(accepted.status).toBe(202);
});

verifies("HTTP-ERRORS", "what is not HTTP is answered too, and the server goes on", async () => {
  await using server = await startServer();
  const answer = await new Promise<string>((resolve, reject) => {
    const socket = connectTcp(server.broker.port, "127.0.0.1", () => socket.write("NOT HTTP AT ALL\r\n\r\n"));
    let text = "";
    socket.on("data", (chunk) => {
      text += chunk.toString();
    });
    socket.on("close", () => resolve(text));
    socket.on("error", reject);
  });
  expect(answer).toContain("400 Bad Request");
  expect(JSON.parse(answer.split("\r\n\r\n")[1] ?? "")).toMatchObject({ error: { code: "bad_request" } });
  expect((await server.call("GET", "/healthz", { key: null })).body.ok).toBe(true);
});

verifies("HTTP-PAGES", "pages tile the log: ascending, complete, and equal to what a socket shows", async () => {
  await using server = await startServer();
  const { id } = await server.session();
  using client = await server.socket({ query: `?session=${id}&previews=false` });
  const turn = await server.call("POST", `/v1/sessions/${id}/turns`, { body: { text: "hello", wait_s: 20 } });
  expect(turn.body).toMatchObject({ outcome: "completed", reason: "end_turn", result: { type: "result" } });
  await client.next(
    "event",
    (event) => event.event_type === "session.state" && JSON.stringify(event.payload).includes("idle"),
  );
  const paged: string[] = [];
  let after = 0;
  for (let head = 1; after < head; ) {
    const page = await server.call("GET", `/v1/sessions/${id}/events?after=${after}&limit=3`);
    expect(page.body.events.length).toBeLessThanOrEqual(3);
    expect(page.body.next).toBeGreaterThan(after);
    paged.push(
      ...page.text
        .slice('{"events":['.length, page.text.lastIndexOf('],"head"'))
        .split(/,(?=\{"session_id")/)
        .filter((text) => text !== ""),
    );
    ({ head, next: after } = page.body);
  }
  const shown = client.received
    .filter(({ frame }) => frame.type === "event")
    .map(({ text }) => `{${text.slice('{"type":"event",'.length)}`);
  expect(paged.slice(0, shown.length)).toEqual(shown);
  const only = await server.call("GET", `/v1/sessions/${id}/events?event_type=turn.completed`);
  expect(only.body.events.map((event: { event_type: string }) => event.event_type)).toEqual(["turn.completed"]);
  expect((await server.call("GET", `/v1/sessions/${id}/events?after=head`)).body.events).toEqual([]);
});

verifies("IDEMPOTENCY", "a retried creation, command or turn is done once, over any transport", async () => {
  await using server = await startServer();
  const create = (body: unknown, key: string) =>
    server.call("POST", "/v1/sessions", { body, headers: { "idempotency-key": key } });
  const first = await create({ name: "one" }, "k1");
  expect((await create({ name: "one" }, "k1")).body.id).toBe(first.body.id);
  expectProblem(await create({ name: "two" }, "k1"), "id_reused");
  expectProblem(await create({}, "x".repeat(129)), "bad_request", "Idempotency-Key");
  const { id } = first.body;
  const command = { id: "c1", event_type: "query", payload: { text: "once" } };
  const { seq } = (await server.call("POST", `/v1/sessions/${id}/commands`, { body: command })).body;
  using client = await server.socket();
  expect(await client.command({ ...command, session_id: id })).toMatchObject({ type: "ack", seq, duplicate: true });
  const turn = await server.call("POST", `/v1/sessions/${id}/turns`, { body: { id: "c1", text: "once", wait_s: 20 } });
  expect(turn.body.outcome).toBe("completed");
  const reused = await client.command({ ...command, session_id: id, payload: { text: "other" } });
  expect(reused).toMatchObject({ type: "error", code: "id_reused" });
  const queries = await server.call("GET", `/v1/sessions/${id}/events?event_type=query`);
  expect(queries.body.events).toHaveLength(1);
});

verifies("NOT-AVAILABLE", "what later versions serve is refused by name, not half done", async () => {
  await using server = await startServer();
  const { id } = await server.session();
  const control = (request: object) => {
    const body = {
      id: "c",
      event_type: "control_request",
      payload: { type: "control_request", request_id: "r", request },
    };
    return server.call("POST", `/v1/sessions/${id}/commands`, { body });
  };
  const servers = { subtype: "mcp_set_servers", servers: {} };
  expectProblem(await control(servers), "not_available", "payload.request.subtype");
  const agents = { subtype: "initialize", agents: { a: {} } };
  expectProblem(await control(agents), "not_available", "payload.request.agents");
});

verifies(
  "SESSION-OPTIONS",
  "what cannot be given to an agent is named, and MCP servers are an admin's to give",
  async () => {
    await using server = await startServer();
    const driver = await server.key(["driver"]);
    const make = (agent: unknown, key: string = server.adminKey) =>
      server.call("POST", "/v1/sessions", { body: { agent }, key });
    const git = { name: "Ada", email: "ada@example.org" };
    expect((await make({ git, file_checkpointing: true }, driver.key)).status).toBe(201);
    const servers = {
      a: { command: "a", alwaysLoad: true },
      b: { type: "sse", url: "https://b.example.org/", headers: { x: "y" } },
    };
    expect((await make({ mcp_servers: servers })).status).toBe(201);
    expectProblem(await make({ mcp_servers: servers }, driver.key), "forbidden");
    for (const [agent, field] of [
      [{ git: { name: "Ada" } }, "git.email"],
      [{ git: { ...git, name: "..." } }, "git.name"],
      [{ git: { ...git, name: "A\nB" } }, "git.name"],
      [{ git: { ...git, email: "a <b>" } }, "git.email"],
      [{ git: { ...git, attribution: "no" } }, "git.attribution"],
      [{ mcp_servers: { page: { type: "sdk", name: "page" } } }, "mcp_servers.page.type"],
      [{ mcp_servers: { a: { type: "http", url: "file:///etc/passwd" } } }, "mcp_servers.a.url"],
      [{ mcp_servers: { a: { type: "http", command: "a" } } }, "mcp_servers.a.url"],
      [{ mcp_servers: { a: {} } }, "mcp_servers.a.command"],
      [{ mcp_servers: { a: { command: "a", cwd: "/" } } }, "mcp_servers.a"],
      [{ mcp_servers: { "a b": { command: "a" } } }, "mcp_servers.a b"],
      [{ file_checkpointing: "true" }, "file_checkpointing"],
    ] as const) {
      expectProblem(await make(agent), "bad_request", `agent.${field}`);
    }
  },
);

test("sessions are listed in pages, filtered, renamed, ended and purged", async () => {
  await using server = await startServer();
  const ids: string[] = [];
  for (const team of ["a", "b", "a"]) ids.push((await server.session({ metadata: { team }, name: `of ${team}` })).id);
  const list = async (query: string) => (await server.call("GET", `/v1/sessions${query}`)).body;
  const first = await list("?limit=2");
  expect(first.sessions).toHaveLength(2);
  const second = await list(`?limit=2&cursor=${encodeURIComponent(first.next)}`);
  const listed = [...first.sessions, ...second.sessions].map((session: { id: string }) => session.id);
  expect(listed.toSorted()).toEqual(ids.toSorted());
  expect(second.next).toBeUndefined();
  expect((await list("?metadata.team=a")).sessions).toHaveLength(2);
  expect((await list("?name=of%20b&state=hibernated")).sessions).toHaveLength(1);
  expectProblem(await server.call("GET", "/v1/sessions?state=asleep"), "bad_request", "state");
  const [id] = ids;
  const renamed = await server.call("PATCH", `/v1/sessions/${id}`, { body: { name: null, metadata: { x: "y" } } });
  expect(renamed.body).toMatchObject({ id, name: null, metadata: { x: "y" } });
  const ended = await server.call("DELETE", `/v1/sessions/${id}`);
  expect({ status: ended.status, state: ended.body.state }).toEqual({ status: 200, state: "ended" });
  expect((await server.call("GET", `/v1/sessions/${id}/events`)).status).toBe(200);
  expectProblem(await server.call("POST", `/v1/sessions/${id}/turns`, { body: { text: "late" } }), "session_ended");
  expect((await server.call("DELETE", `/v1/sessions/${id}?purge=true`)).status).toBe(204);
  expectProblem(await server.call("GET", `/v1/sessions/${id}`), "not_found");
});

test("a turn is waited for no longer than asked", async () => {
  await using server = await startServer();
  const { id } = await server.session();
  const late = await server.call("POST", `/v1/sessions/${id}/turns`, { body: { text: "!stall", wait_s: 0.2 } });
  expect(late.status).toBe(202);
  expect(late.body).toEqual({ turn_id: expect.any(String), seq: expect.any(Number) });
  const message = { role: "user", content: [{ type: "text", text: "inner form" }] };
  const now = await server.call("POST", `/v1/sessions/${id}/turns`, { body: { message } });
  expect(now.status).toBe(202);
});

test("health is public, metrics are an operator's and count what happened", async () => {
  await using server = await startServer();
  const viewer = await server.key(["viewer"]);
  await server.session();
  expect((await server.call("GET", "/healthz", { key: null })).body).toEqual({
    ok: true,
    version: server.broker.version,
  });
  expect((await server.call("GET", "/readyz", { key: null })).body.checks).toMatchObject({
    store: { ok: true },
    agent: { ok: true },
  });
  expectProblem(await server.call("GET", "/metrics", { key: null }), "unauthenticated");
  expectProblem(await server.call("GET", "/metrics", { key: viewer.key }), "forbidden");
  const metrics = await server.call("GET", "/metrics");
  expect(metrics.text).toContain('patchbay_sessions{state="hibernated"} 1');
  expect(metrics.text).toContain('route="/v1/sessions",status="201"} 1');
  expect(
    metrics.text.split("\n").every((line) => line === "" || line.startsWith("#") || line.startsWith("patchbay_")),
  ).toBe(true);
});
