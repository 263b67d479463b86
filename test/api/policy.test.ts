import { expect, test } from "vitest";
import { startServer } from "../kit/server.ts";
import { verifies } from "../kit/verifies.ts";

const NOTHING = { rules: [], default: "ask" };
const TENANT_RULES = {
  rules: [
    { id: "no-rm", effect: "deny", command: ["rm *"], message: "Files are removed by hand here." },
    { id: "status", effect: "allow", command: ["git status"] },
  ],
  default: "ask",
};
const bash = (command: string) => ({ question: { tool_name: "Bash", input: { command } } });

verifies("POLICY", "an admin stores the tenant's policy, and a dry run says what it would decide", async () => {
  await using server = await startServer();
  const admin = await server.key(["admin"]);
  const call = (method: string, path: string, body?: unknown) => server.call(method, path, { key: admin.key, body });
  expect(await call("GET", "/v1/policy")).toMatchObject({ status: 200, body: NOTHING });
  expect(await call("PUT", "/v1/policy", TENANT_RULES)).toMatchObject({ status: 200, body: TENANT_RULES });
  expect((await call("GET", "/v1/policy")).body).toEqual(TENANT_RULES);
  const check = async (command: string) => (await call("POST", "/v1/policy/check", bash(command))).body;
  expect(await check("git status")).toEqual({ effect: "allow", decided_by: "policy:tenant/status", approvers: 1 });
  expect(await check("git status; rm -rf x")).toEqual({
    effect: "deny",
    decided_by: "policy:tenant/no-rm",
    message: "Files are removed by hand here.",
    approvers: 1,
  });
  expect(await check("git status > x")).toMatchObject({ effect: "ask", decided_by: "policy:default" });
  const wrong = await call("PUT", "/v1/policy", { rules: [{ id: "x", effect: "deny", path: [".."] }] });
  expect(wrong).toMatchObject({
    status: 400,
    body: { error: { code: "bad_request", details: { field: "rules.0.path.0" } } },
  });
  expect((await call("GET", "/v1/policy")).body).toEqual(TENANT_RULES);
});

verifies("POLICY", "a session's own policy is asked after the tenant's denies", async () => {
  await using server = await startServer();
  const { id } = await server.session();
  const path = `/v1/sessions/${id}/policy`;
  await server.call("PUT", "/v1/policy", { body: TENANT_RULES });
  expect((await server.call("GET", path)).body).toEqual(NOTHING);
  const own = { rules: [{ id: "all", effect: "allow", tools: ["*"] }], default: "deny" };
  expect(await server.call("PUT", path, { body: own })).toMatchObject({ status: 200, body: own });
  expect((await server.call("GET", path)).body).toEqual(own);
  const check = async (command: string) =>
    (await server.call("POST", "/v1/policy/check", { body: { ...bash(command), session_id: id } })).body.decided_by;
  expect(await check("make")).toBe("policy:session/all");
  expect(await check("rm x")).toBe("policy:tenant/no-rm");
  const stored = await server.call("PUT", path, { body: { grants: { stored_rules: true } } });
  expect(stored.body.error.details).toEqual({ field: "grants.stored_rules" });
  const missing = await server.call("PUT", "/v1/sessions/none/policy", { body: own });
  expect(missing).toMatchObject({ status: 404, body: { error: { code: "not_found" } } });
});

verifies("POLICY", "policies are for admins of their tenant, and another tenant's for operators", async () => {
  await using server = await startServer();
  const { id } = await server.session();
  const weak = await server.key(["driver", "approver"]);
  const stranger = await server.key(["admin"], "other");
  const routes = [
    ["GET", "/v1/policy"],
    ["PUT", "/v1/policy"],
    ["POST", "/v1/policy/check"],
    ["GET", `/v1/sessions/${id}/policy`],
    ["PUT", `/v1/sessions/${id}/policy`],
  ] as const;
  for (const [method, path] of routes) {
    const body = method === "GET" ? undefined : NOTHING;
    expect({ path, status: (await server.call(method, path, { key: weak.key, body })).status }).toEqual({
      path,
      status: 403,
    });
    expect((await server.call(method, path, { key: null, body })).status).toBe(401);
  }
  for (const [method, path] of routes.slice(3)) {
    const body = method === "GET" ? undefined : NOTHING;
    expect((await server.call(method, path, { key: stranger.key, body })).status).toBe(404);
  }
  const foreign = await server.call("POST", "/v1/policy/check", {
    key: stranger.key,
    body: { ...bash("ls"), session_id: id },
  });
  expect(foreign.status).toBe(404);
  // A tenant that is there and one that is not look the same.
  for (const tenant of ["default", "nobody"]) {
    for (const method of ["GET", "PUT"]) {
      const answer = await server.call(method, `/v1/policy?tenant=${tenant}`, {
        key: stranger.key,
        ...(method === "PUT" && { body: NOTHING }),
      });
      expect(answer).toMatchObject({ status: 403, body: { error: { details: { field: "tenant" } } } });
    }
  }
  expect((await server.call("PUT", "/v1/policy?tenant=other", { body: TENANT_RULES })).status).toBe(200);
  expect((await server.call("GET", "/v1/policy", { key: stranger.key })).body).toEqual(TENANT_RULES);
  expect((await server.call("GET", "/v1/policy")).body).toEqual(NOTHING);
  expect((await server.call("PUT", "/v1/policy?tenant=nobody", { body: NOTHING })).status).toBe(404);
});

test("a ticket for one session reaches no policy but to read its own", async () => {
  await using server = await startServer();
  const { id } = await server.session();
  const { key } = await server
    .call("POST", "/v1/keys", { body: { roles: ["admin"], session_id: id } })
    .then(({ body }) => body);
  const call = (method: string, path: string, body?: unknown) => server.call(method, path, { key, body });
  expect((await call("GET", `/v1/sessions/${id}/policy`)).status).toBe(200);
  expect((await call("PUT", `/v1/sessions/${id}/policy`, NOTHING)).status).toBe(403);
  expect((await call("PUT", "/v1/policy", NOTHING)).status).toBe(403);
  expect((await call("POST", "/v1/policy/check", bash("ls"))).status).toBe(403);
});

test("a change of a policy is on record", async () => {
  await using server = await startServer();
  const admin = await server.key(["admin"]);
  await server.call("PUT", "/v1/policy", { key: admin.key, body: TENANT_RULES });
  const { body } = await server.call("GET", "/v1/audit", { key: admin.key });
  expect(body.entries.at(-1)).toMatchObject({
    kind: "policy",
    subtype: "set_policy",
    actor: { id: admin.id, via: "http" },
    decision: TENANT_RULES,
    outcome: "stored",
  });
});
