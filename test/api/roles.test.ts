import { expect } from "vitest";
import { ROLES, type Role } from "../../src/protocol/roles.ts";
import { payloadField } from "../kit/payload-field.ts";
import { startServer } from "../kit/server.ts";
import { verifies } from "../kit/verifies.ts";

/** Typed by hand: which roles each call is for, in the order viewer, approver, driver, admin, operator; `-` is 403. */
const CALLS: readonly (readonly [method: string, path: string, body: unknown, roles: string])[] = [
  ["GET", "/v1/sessions", undefined, "vadAO"],
  ["GET", "/v1/sessions/{id}", undefined, "vadAO"],
  ["GET", "/v1/sessions/{id}/events", undefined, "vadAO"],
  ["GET", "/v1/sessions/{id}/requests", undefined, "vadAO"],
  ["POST", "/v1/tickets", {}, "vadAO"],
  ["POST", "/v1/sessions", {}, "--dAO"],
  ["POST", "/v1/sessions", { agent: { permission_mode: "plan" } }, "--dAO"],
  ["POST", "/v1/sessions", { agent: { permission_mode: "acceptEdits" } }, "---AO"],
  ["POST", "/v1/sessions", { agent: { env: { GIT_AUTHOR_NAME: "x" } } }, "---AO"],
  ["PATCH", "/v1/sessions/{id}", { name: "x" }, "--dAO"],
  ["POST", "/v1/sessions/{id}/fork", {}, "--dAO"],
  ["POST", "/v1/sessions/{id}/turns", { text: "x" }, "--dAO"],
  ["POST", "/v1/sessions/{id}/commands", { event_type: "query", payload: { text: "x" } }, "--dAO"],
  ["POST", "/v1/sessions/{id}/commands", control("get_context_usage"), "--dAO"],
  ["POST", "/v1/sessions/{id}/commands", control("set_permission_mode", { mode: "plan" }), "--dAO"],
  ["POST", "/v1/sessions/{id}/commands", control("set_permission_mode", { mode: "acceptEdits" }), "---AO"],
  ["POST", "/v1/sessions/{id}/commands", control("a_subtype_of_next_year"), "---AO"],
  ["GET", "/v1/keys", undefined, "---AO"],
  ["POST", "/v1/keys", {}, "---AO"],
  ["POST", "/v1/keys", { roles: ["admin"] }, "---AO"],
  ["POST", "/v1/keys", { roles: ["operator"] }, "----O"],
  ["POST", "/v1/keys", { tenant: "acme", roles: ["viewer"] }, "----O"],
  ["GET", "/v1/audit", undefined, "---AO"],
  ["GET", "/metrics", undefined, "----O"],
  ["DELETE", "/v1/sessions/{new}", undefined, "--dAO"],
  ["DELETE", "/v1/sessions/{new}?purge=true", undefined, "---AO"],
];

function control(subtype: string, fields: Readonly<Record<string, unknown>> = {}): Readonly<Record<string, unknown>> {
  return { event_type: "control_request", payload: { type: "control_request", request: { ...fields, subtype } } };
}

verifies(
  "ROLES",
  "each call is for the roles that the contract gives it, and 403 for the others",
  async () => {
    await using server = await startServer();
    const { id } = await server.session();
    const keys = new Map<Role, string>();
    for (const role of ROLES) keys.set(role, (await server.key([role])).key);
    let count = 0;
    for (const [method, path, body, expected] of CALLS) {
      let served = "";
      for (const [index, role] of ROLES.entries()) {
        count += 1;
        const target = path.includes("{new}") ? (await server.session()).id : id;
        const command = path.endsWith("/commands") ? { id: `c${count}` } : {};
        const sent = body === undefined ? undefined : unique({ ...command, ...body }, `r${count}`);
        const url = path.replace("{id}", id).replace("{new}", target);
        const answer = await server.call(method, url, { key: keys.get(role) ?? "", body: sent });
        expect([200, 201, 202, 204, 403]).toContain(answer.status);
        if (answer.status === 403) expect(answer.body.error.code).toBe("forbidden");
        served += answer.status === 403 ? "-" : "vadAOr".charAt(index);
      }
      // A runner's key is for none of them.
      expect({ method, path, body, served }).toEqual({ method, path, body, served: `${expected}-` });
    }
  },
  60_000,
);

/** A control request has an id of its own. */
function unique(body: Readonly<Record<string, unknown>>, requestId: string): unknown {
  const { payload } = body;
  if (body["event_type"] !== "control_request" || typeof payload !== "object") return body;
  return { ...body, payload: { ...payload, request_id: requestId } };
}

verifies("ROLES", "a new key drives and answers; an approver answers and no more", async () => {
  await using server = await startServer();
  const made = await server.call("POST", "/v1/keys", { body: {} });
  expect(made.body).toMatchObject({ tenant: "default", roles: ["driver", "approver"], session_id: null });
  const { id } = await server.session();
  using driver = await server.socket({ key: made.body.key, query: `?session=${id}` });
  using approver = await server.socket({ key: (await server.key(["approver"])).key, query: `?session=${id}` });
  using watcher = await server.socket({ key: (await server.key(["viewer"])).key, query: `?session=${id}` });
  for (const client of [driver, approver, watcher]) await client.next("subscribed");
  await driver.command({ id: "q", session_id: id, event_type: "query", payload: { text: "!ask" } });
  const opened = await watcher.next("event", (frame) => frame.event_type === "request.opened");
  const request_id = payloadField(opened, "request_id");
  const answer = (text: string) => ({
    id: text,
    session_id: id,
    event_type: "control_response" as const,
    payload: {
      type: "control_response",
      response: { subtype: "success", request_id, response: { behavior: "allow" } },
    },
  });
  expect(await watcher.command(answer("v"))).toMatchObject({ type: "error", code: "forbidden" });
  expect(
    await approver.command({ id: "x", session_id: id, event_type: "query", payload: { text: "x" } }),
  ).toMatchObject({ code: "forbidden" });
  expect(await approver.command(answer("a"))).toMatchObject({ type: "ack" });
  const resolved = await watcher.next("event", (frame) => frame.event_type === "request.resolved");
  expect(resolved.payload).toMatchObject({ request_id, outcome: "answered" });
});

verifies("ROLES", "a key for one session reaches nothing beside it, whatever its roles", async () => {
  await using server = await startServer();
  const [mine, other] = [await server.session(), await server.session()];
  const made = await server.call("POST", "/v1/keys", { body: { session_id: mine.id, roles: ["admin"] } });
  expect(made.body).toMatchObject({ session_id: mine.id, roles: ["admin"] });
  const ask = async (method: string, path: string, body?: unknown) =>
    (await server.call(method, path, { key: made.body.key, body })).status;
  expect(await ask("GET", `/v1/sessions/${mine.id}`)).toBe(200);
  expect(await ask("GET", `/v1/sessions/${other.id}`)).toBe(404);
  expect(await ask("POST", `/v1/sessions/${other.id}/turns`, { text: "x" })).toBe(404);
  expect(await ask("DELETE", `/v1/sessions/${other.id}?purge=true`)).toBe(404);
  for (const [method, path, body] of [
    ["POST", "/v1/sessions", {}],
    ["POST", "/v1/keys", {}],
    ["GET", "/v1/keys", undefined],
    ["DELETE", `/v1/keys/${made.body.id}`, undefined],
    ["GET", "/v1/audit", undefined],
  ] as const) {
    expect({ path, status: await ask(method, path, body) }).toEqual({ path, status: 403 });
  }
  const listed = await server.call("GET", "/v1/sessions", { key: made.body.key });
  expect(listed.body.sessions.map(({ id }: { id: string }) => id)).toEqual([mine.id]);
  expect((await server.call("POST", "/v1/keys", { body: { session_id: "ses_never" } })).status).toBe(404);
  const foreign = { session_id: mine.id, tenant: "other" };
  expect((await server.call("POST", "/v1/keys", { body: foreign })).status).toBe(404);
});

verifies("P9-FOREIGN-404", "an admin manages the keys of his tenant and sees no others", async () => {
  await using server = await startServer();
  const { id } = await server.session();
  const admin = await server.key(["admin"], "acme");
  const home = await server.key(["viewer"]);
  const ask = (method: string, path: string, body?: unknown) => server.call(method, path, { key: admin.key, body });
  const made = await ask("POST", "/v1/keys", { name: "theirs" });
  expect(made.body).toMatchObject({ tenant: "acme", roles: ["driver", "approver"] });
  const listed = (await ask("GET", "/v1/keys")).body.keys;
  expect(listed.map((key: { id: string }) => key.id).toSorted()).toEqual([admin.id, made.body.id].toSorted());
  const foreign = await ask("DELETE", `/v1/keys/${home.id}`);
  expect({ status: foreign.status, text: foreign.text }).toEqual({
    status: 404,
    text: (await ask("DELETE", "/v1/keys/nobody")).text,
  });
  expect((await ask("POST", "/v1/keys", { session_id: id })).status).toBe(404);
  expect((await ask("POST", "/v1/sessions", {})).body.tenant).toBe("acme");
  expect((await ask("GET", "/v1/sessions")).body.sessions).toHaveLength(1);
  expect((await ask("DELETE", `/v1/keys/${made.body.id}`)).status).toBe(200);
});

verifies("ROLES", "answers with private facts are shown to drivers, and to nobody below", async () => {
  await using server = await startServer();
  const { id } = await server.session();
  using driver = await server.socket({ key: (await server.key(["driver"])).key, query: `?session=${id}` });
  const payload = { type: "control_request", request_id: "m", request: { subtype: "mcp_status" } };
  await driver.command({ id: "m", session_id: id, event_type: "control_request", payload });
  const isAnswer = (frame: { readonly event_type: string; readonly command_id?: string }): boolean =>
    frame.event_type === "control_response" && frame.command_id === "m";
  const answer = await driver.next("event", isAnswer);
  const sees = async (roles: readonly Role[]): Promise<boolean> => {
    const { key } = await server.key(roles);
    const page = await server.call("GET", `/v1/sessions/${id}/events?event_type=control_response`, { key });
    return page.body.events.some(({ seq }: { seq: number }) => seq === answer.seq);
  };
  expect(
    await Promise.all(ROLES.filter((role) => role !== "runner").map(async (role) => [role, await sees([role])])),
  ).toEqual([
    ["viewer", false],
    ["approver", false],
    ["driver", true],
    ["admin", true],
    ["operator", true],
  ]);
  expect(await sees(["driver", "approver"])).toBe(true);
});
