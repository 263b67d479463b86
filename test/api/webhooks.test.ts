import { expect } from "vitest";
import { type Answer, type ServerOptions, startServer, type TestServer } from "../kit/server.ts";
import { verifies } from "../kit/verifies.ts";
import { answering, expectedSignature, type Received, type Receiver, startReceiver } from "../kit/webhook-receiver.ts";
import { connect, UpgradeRefused } from "../kit/ws-client.ts";

const PUBLIC_URL = "https://patchbay.example/behind";
const startTold = ({ options, ...rest }: ServerOptions = {}): Promise<TestServer> =>
  startServer({ options: { webhookAllowedHosts: ["127.0.0.1"], publicUrl: PUBLIC_URL, ...options }, ...rest });

const essence = ({ status, body }: Answer) => ({ status, code: body?.error?.code });
const isOpened = ({ body }: Received): boolean => body.event_type === "request.opened";

/** A session in which the agent asks, and its questions as the receiver was told of them. */
async function asked(server: TestServer, receiver: Receiver, prompt: string, count = 1) {
  const made = await server.call("POST", "/v1/webhooks", { body: { url: receiver.url } });
  const session = await server.session({ prompt });
  const seen: Received[] = [];
  for (let index = 0; index < count; index += 1) {
    seen.push(await receiver.first((call) => isOpened(call) && !seen.includes(call)));
  }
  const post = (url: string, body: unknown) => server.call("POST", url.replace(PUBLIC_URL, ""), { key: null, body });
  return { webhook: made.body, session, seen, post };
}

const allow = { response: { behavior: "allow" } };

verifies("WEBHOOKS", "an admin makes, lists and removes those of his tenant; the secret is told once", async () => {
  await using server = await startTold();
  const admin = await server.key(["admin"], "acme");
  const { key } = admin;
  const url = "https://93.184.216.34/hook?token=receivers-own-secret";
  const made = await server.call("POST", "/v1/webhooks", { key, body: { url, events: ["turn.failed"] } });
  expect(made.status).toBe(201);
  const { secret, ...shown } = made.body;
  expect(secret).toMatch(/^whsec_[\w-]{43}$/);
  expect(shown).toEqual({
    id: expect.any(String),
    tenant: "acme",
    url,
    events: ["turn.failed"],
    created_at_ms: expect.any(Number),
    disabled_at_ms: null,
    queued: 0,
    dropped: 0,
  });
  const own = "chosen-by-the-receiver-0123";
  const second = await server.call("POST", "/v1/webhooks?tenant=acme", { body: { url, secret: own } });
  expect(second.body).toMatchObject({ secret: own, tenant: "acme" });
  expect(second.body.events).toHaveLength(5);
  const list = await server.call("GET", "/v1/webhooks", { key });
  expect(list.body.webhooks[0]).toEqual(shown);
  expect(list.body.webhooks).toHaveLength(2);
  for (const hidden of [secret, own, '"secret":']) expect(list.text).not.toContain(hidden);
  expect((await server.call("GET", "/v1/webhooks")).body.webhooks).toEqual([]);
  const deliveries = await server.call("GET", `/v1/webhooks/${shown.id}/deliveries`, { key });
  expect(deliveries.body).toEqual({ deliveries: [], next: 0 });
  expect((await server.call("DELETE", `/v1/webhooks/${shown.id}`, { key })).status).toBe(204);
  expect(essence(await server.call("DELETE", `/v1/webhooks/${shown.id}`, { key })).status).toBe(404);
  expect((await server.call("GET", "/v1/webhooks", { key })).body.webhooks).toHaveLength(1);
  const audit = await server.call("GET", "/v1/audit?kind=webhook", { key });
  expect(audit.body.entries).toMatchObject([
    { subtype: "create", actor: { id: admin.id, address: "127.0.0.1" }, decision: { webhook_id: shown.id } },
    { subtype: "create", actor: { id: "testadmin" }, decision: { webhook_id: second.body.id } },
    { subtype: "remove", actor: { id: admin.id }, decision: { webhook_id: shown.id }, outcome: "removed" },
  ]);
  for (const hidden of [secret, own, "receivers-own-secret"]) expect(audit.text).not.toContain(hidden);
});

verifies("WEBHOOKS", "nobody below admin and no other tenant reaches them, and wrong ones name the field", async () => {
  await using server = await startTold();
  const url = "https://93.184.216.34/hook";
  const { id } = (await server.call("POST", "/v1/webhooks", { body: { url } })).body;
  const session = await server.session();
  const narrowed = await server.call("POST", "/v1/keys", { body: { roles: ["admin"], session_id: session.id } });
  const weak = await server.key(["driver", "approver"]);
  for (const { key } of [narrowed.body, weak]) {
    expect((await server.call("POST", "/v1/webhooks", { key, body: { url } })).status).toBe(403);
    expect((await server.call("GET", "/v1/webhooks", { key })).status).toBe(403);
    expect((await server.call("DELETE", `/v1/webhooks/${id}`, { key })).status).toBe(403);
    expect((await server.call("GET", `/v1/webhooks/${id}/deliveries`, { key })).status).toBe(403);
  }
  const { key } = await server.key(["admin"], "other");
  for (const one of [id, "never"]) {
    expect((await server.call("DELETE", `/v1/webhooks/${one}`, { key })).status).toBe(404);
    expect((await server.call("GET", `/v1/webhooks/${one}/deliveries`, { key })).status).toBe(404);
  }
  expect((await server.call("GET", "/v1/webhooks?tenant=default", { key })).status).toBe(403);
  expect((await server.call("POST", "/v1/webhooks?tenant=default", { key, body: { url } })).status).toBe(403);
  for (const [body, field] of [
    [{}, "url"],
    [{ url: "http://93.184.216.34/" }, "url"],
    [{ url: "https://169.254.169.254/latest/meta-data" }, "url"],
    [{ url: "https://localhost/" }, "url"],
    [{ url: "https://a:b@93.184.216.34/" }, "url"],
    [{ url: "https://93.184.216.34:22/" }, "url"],
    [{ url, events: [] }, "events"],
    [{ url, events: ["agent.log"] }, "events.0"],
    [{ url, secret: "short" }, "secret"],
    [{ url, method: "GET" }, "method"],
  ] as const) {
    const refused = await server.call("POST", "/v1/webhooks", { body });
    expect({ body, status: refused.status, field: refused.body.error.details.field }).toEqual({
      body,
      status: 400,
      field,
    });
  }
});

verifies(
  "WEBHOOKS",
  "what a session tells arrives as the events of its log, and a person answers by the link",
  async () => {
    await using receiver = await startReceiver();
    await using server = await startTold();
    const { webhook, session, seen, post } = await asked(server, receiver, "!ask");
    const [opened] = seen;
    if (opened === undefined) expect.fail("nothing was asked");
    const { answer, ...envelope } = opened.body;
    expect(opened.headers["patchbay-signature"]).toBe(expectedSignature(webhook.secret, opened));
    expect(opened.eventId).toBe(`${session.id}:${envelope.seq}`);
    expect(answer).toEqual({
      url: expect.stringMatching(/^https:\/\/patchbay\.example\/behind\/v1\/answers\/[\w-]{43}$/),
      expires_at_ms: expect.any(Number),
    });
    expect(answer.expires_at_ms - Date.now()).toBeGreaterThan(23 * 3_600_000);

    // A bad answer costs the link nothing.
    expect(essence(await post(answer.url, { response: { behavior: "maybe" } }))).toEqual({
      status: 400,
      code: "invalid_answer",
    });
    expect((await post(answer.url, { ...allow, request_id: "another" })).status).toBe(400);
    const mode = { type: "setMode", mode: "acceptEdits", destination: "session" };
    const widening = { response: { behavior: "allow", updatedPermissions: [mode] } };
    expect(essence(await post(answer.url, widening))).toEqual({ status: 403, code: "forbidden" });

    const accepted = await post(answer.url, allow);
    expect({ status: accepted.status, seq: accepted.body.seq }).toEqual({ status: 202, seq: expect.any(Number) });
    expect(essence(await post(answer.url, allow))).toEqual({ status: 401, code: "unauthenticated" });
    const principal = `webhook:${webhook.id}`;
    const resolved = await receiver.first(({ body }) => body.event_type === "request.resolved");
    expect(resolved.body.payload).toMatchObject({ outcome: "answered", decided_by: principal });
    expect(resolved.body).not.toHaveProperty("answer");
    const completed = await receiver.first(({ body }) => body.event_type === "turn.completed");

    const log = await server.call("GET", `/v1/sessions/${session.id}/events`);
    for (const told of [envelope, resolved.body, completed.body]) {
      expect(log.body.events.find((event: { seq: number }) => event.seq === told.seq)).toEqual(told);
    }
    const [entry] = (await server.call("GET", `/v1/audit?kind=answer&actor=${principal}`)).body.entries;
    expect(entry).toMatchObject({ actor: { roles: ["approver"], ticket: true, via: "http" }, outcome: "answered" });
    const ticket = String(answer.url).split("/").at(-1) ?? "";
    const audit = await server.call("GET", "/v1/audit");
    const deliveries = await server.call("GET", `/v1/webhooks/${webhook.id}/deliveries`);
    for (const { text } of [log, audit, deliveries]) expect(text).not.toContain(ticket);
  },
);

verifies("WEBHOOKS", "a link answers its own request only, and opens nothing else", async () => {
  await using receiver = await startReceiver();
  await using server = await startTold();
  const { session, seen, post } = await asked(server, receiver, "!ask2", 2);
  const [one, two] = seen.map(({ body }) => body);
  const ticket = String(two.answer.url).split("/").at(-1) ?? "";
  for (const query of [`?ticket=${ticket}`, `?ticket=${ticket}&session=${session.id}`]) {
    const upgrade = await connect(server.url, { query }).catch((error: unknown) => error);
    expect(upgrade).toBeInstanceOf(UpgradeRefused);
  }
  expect((await server.call("GET", `/v1/sessions/${session.id}`, { key: ticket })).status).toBe(401);
  // A ticket of another kind is none for this route.
  const other = (await server.call("POST", "/v1/tickets", { body: {} })).body.ticket;
  expect((await post(`/v1/answers/${other}`, allow)).status).toBe(401);

  const both = await Promise.all([post(one.answer.url, allow), post(one.answer.url, allow)]);
  expect(both.map(({ status }) => status).toSorted()).toEqual([202, 401]);
  const open = (await server.call("GET", `/v1/sessions/${session.id}/requests`)).body.requests;
  expect(open.map((request: { request_id: string }) => request.request_id)).toEqual([two.payload.request_id]);
  // Somebody with a key is quicker.
  const inner = { subtype: "success", request_id: two.payload.request_id, response: allow.response };
  const payload = { type: "control_response", response: inner };
  await server.call("POST", `/v1/sessions/${session.id}/commands`, {
    body: { id: "by-key", event_type: "control_response", payload },
  });
  const late = await post(two.answer.url, { response: { behavior: "deny", message: "no" } });
  expect(late.status).toBe(409);
  expect(late.body.error).toMatchObject({ code: "request_already_answered", details: { decided_by: "testadmin" } });
});

verifies("WEBHOOKS", "a link is over at its time, and with its webhook", async () => {
  await using receiver = await startReceiver();
  await using brief = await startTold({ tuning: { webhooks: { answerLinkMs: 1 } } });
  const over = await asked(brief, receiver, "!ask");
  expect(essence(await over.post(over.seen[0]?.body.answer.url, allow))).toEqual({
    status: 401,
    code: "unauthenticated",
  });
  await using second = await startReceiver();
  await using server = await startTold();
  const { webhook, session, seen, post } = await asked(server, second, "!ask");
  await server.call("DELETE", `/v1/webhooks/${webhook.id}`);
  expect((await post(seen[0]?.body.answer.url, allow)).status).toBe(401);
  expect((await server.call("GET", `/v1/sessions/${session.id}/requests`)).body.requests).toHaveLength(1);
});

verifies("WEBHOOKS", "without a public URL there is no link; a repeated call carries the same one", async () => {
  await using receiver = await startReceiver();
  await using private_ = await startTold({ options: { publicUrl: undefined } });
  const { seen } = await asked(private_, receiver, "!ask");
  expect(seen[0]?.body).not.toHaveProperty("answer");
  await using second = await startReceiver((response, call) =>
    answering(isOpened(call) && second.received.filter(isOpened).length < 3 ? 500 : 204)(response, call),
  );
  await using server = await startTold({ tuning: { webhooks: { minRetryMs: 5, maxRetryMs: 5 } } });
  const { seen: tries, post } = await asked(server, second, "!ask", 3);
  const links = new Set(tries.map(({ body }) => body.answer.url));
  expect(links.size).toBe(1);
  expect((await post([...links][0] ?? "", allow)).status).toBe(202);
});
