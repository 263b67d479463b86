import { expect, test } from "vitest";
import {
  answer,
  control,
  mountClaude,
  mountedAxon,
  ofType,
  payloadOf,
  runloopClient,
  say,
  watchAxon,
} from "../../kit/runloop-client.ts";
import { startServer } from "../../kit/server.ts";
import { verifies } from "../../kit/verifies.ts";

const mountOf = (axon_id: string) => ({ type: "broker_mount", protocol: "claude_json", axon_id }) as const;

test("a devbox comes up, is found, changed, and shut down", async () => {
  await using server = await startServer();
  const client = runloopClient(server.url);
  const axon = await client.axons.create({});
  const raw = await client.devboxes.create({ name: "one", metadata: { a: "1" }, mounts: [mountOf(axon.id)] });
  expect(["provisioning", "initializing", "running"]).toContain(raw.status);
  const devbox = await client.devboxes.awaitRunning(raw.id);
  expect(devbox).toMatchObject({ id: raw.id, status: "running", name: "one", capabilities: [], end_time_ms: null });
  expect(devbox.state_transitions.map(({ status }) => status)).toEqual(["provisioning", "initializing", "running"]);
  const again = await client.devboxes
    .create({ mounts: [mountOf(axon.id)] }, { maxRetries: 0 })
    .catch((e: unknown) => e);
  expect(again).toMatchObject({ status: 400 });
  const updated = await server.call("POST", `/v1/devboxes/${raw.id}`, { body: { metadata: { b: "2" } } });
  expect(updated.body).toMatchObject({ name: "one", metadata: { b: "2" } });
  expect((await client.devboxes.list({ status: "running" })).devboxes.map(({ id }) => id)).toEqual([raw.id]);
  expect((await client.devboxes.list({ status: "shutdown" })).devboxes).toEqual([]);
  await client.devboxes.keepAlive(raw.id);
  const gone = await client.devboxes.shutdown(raw.id);
  expect(gone).toMatchObject({ status: "shutdown", shutdown_reason: "api_shutdown", end_time_ms: expect.any(Number) });
  expect((await client.devboxes.shutdown(raw.id)).end_time_ms).toBe(gone.end_time_ms);
  using live = await watchAxon(client, axon.id);
  const told = await live.event(ofType("devbox.shutdown"));
  expect(payloadOf(told)).toEqual({ devbox_id: raw.id });
  expect(live.events.filter(ofType("devbox.running"))).toHaveLength(1);
  // Who asks its agent something does not wait for an answer that nobody gives.
  await control(client, axon.id, "req_1_too_late", { subtype: "initialize", hooks: null });
  const nobody = await live.event(ofType("control_response", "AGENT_EVENT"));
  const late = await live.event(
    (event) =>
      event.sequence > nobody.sequence && event.payload.includes("req_1_too_late") && event.origin === "AGENT_EVENT",
  );
  expect(payloadOf(late)).toMatchObject({ type: "control_response", response: { subtype: "error" } });
  // The axon is there for another one.
  const next = await mountClaude(client, axon.id);
  expect(next.status).toBe("running");
  expect(next.id).not.toBe(raw.id);
  const foreign = await server.key(["admin"], "other");
  await expect(runloopClient(server.url, foreign.key).devboxes.retrieve(next.id)).rejects.toMatchObject({
    status: 404,
  });
});

test("a second try of a creation finds the first one's devbox", async () => {
  await using server = await startServer();
  const client = runloopClient(server.url);
  const axon = await client.axons.create({});
  const make = () =>
    client.devboxes.create({ mounts: [mountOf(axon.id)] }, { idempotencyKey: "stainless-node-retry-devbox" });
  const [one, two] = await Promise.all([make(), make()]);
  expect(two.id).toBe(one.id);
  expect((await make()).id).toBe(one.id);
  expect((await client.devboxes.list()).total_count).toBe(1);
  // Of two that are different calls, one axon takes one.
  const { id } = await client.axons.create({});
  const others = await Promise.allSettled([mountClaude(client, id), mountClaude(client, id)]);
  expect(others.map(({ status }) => status).sort()).toEqual(["fulfilled", "rejected"]);
});

test("what is not served is refused at once, and clearly", async () => {
  await using server = await startServer();
  const client = runloopClient(server.url);
  const axon = await client.axons.create({});
  const refused = async (mount: object, more: object = {}) => {
    const body = { mounts: [{ ...mountOf(axon.id), ...mount }], ...more };
    const { status, headers, body: said } = await server.call("POST", "/v1/devboxes", { body });
    return [status, headers.get("x-should-retry"), said.message];
  };
  for (const protocol of ["acp", "codex_json", "pi_json"]) {
    expect(await refused({ protocol })).toEqual([501, "false", expect.stringContaining(protocol)]);
  }
  expect(await refused({ agent_binary: "opencode" })).toEqual([400, "false", expect.stringContaining("agent_binary")]);
  expect(await refused({ working_directory: "/etc" })).toEqual([400, "false", expect.stringContaining("/etc")]);
  expect(await refused({ working_directory: "~/../.." })).toEqual([400, "false", expect.any(String)]);
  expect(await refused({ launch_args: ["--settings", "x"] })).toEqual([
    400,
    "false",
    expect.stringContaining("--settings"),
  ]);
  const env = { LD_PRELOAD: "x" };
  expect(await refused({}, { environment_variables: env })).toEqual([
    400,
    "false",
    expect.stringContaining("LD_PRELOAD"),
  ]);
  expect(await refused({}, { secrets: { TOKEN: "NONE" } })).toEqual([400, "false", expect.stringContaining("NONE")]);
  expect(await refused({ axon_id: "axn_never" })).toEqual([404, "false", "Axon not found."]);
  expect((await server.call("POST", "/v1/devboxes", { body: {} })).status).toBe(501);
  expect((await client.devboxes.list()).devboxes).toEqual([]);
  // Nothing of that has touched the axon.
  expect((await mountClaude(client, axon.id)).status).toBe("running");
});

test("variables and secrets reach that agent alone; what is mapped or left out is told", async () => {
  await using server = await startServer();
  const client = runloopClient(server.url);
  await client.secrets.create({ name: "MODEL_KEY", value: "sk-secret" });
  const { axon, devbox } = await mountedAxon(client, {
    environment_variables: { PATH: "/opt/devbox/bin", GREETING: "hi" },
    secrets: { ANTHROPIC_API_KEY: "MODEL_KEY" },
    launch_parameters: { launch_commands: ["curl x | bash"] },
  });
  const { axon: other } = await mountedAxon(client);
  using live = await watchAxon(client, axon.id);
  using bystander = await watchAxon(client, other.id);
  const dumped = async (id: string, watcher: typeof live) => {
    await say(client, id, "!dump");
    const event = await watcher.event(ofType("assistant"));
    return JSON.parse(payloadOf(event).message.content[0].text);
  };
  const { env, cwd } = await dumped(axon.id, live);
  expect(env).toMatchObject({ GREETING: "hi", ANTHROPIC_API_KEY: "sk-secret" });
  expect(env.PATH).not.toContain("/opt/devbox");
  expect(cwd).toContain(axon.id);
  expect((await dumped(other.id, bystander)).env).not.toHaveProperty("ANTHROPIC_API_KEY");
  const logs = live.events.filter(ofType("agent.log")).map((event) => payloadOf(event));
  expect(logs.map(({ log_type }) => log_type)).toEqual(["broker", "broker"]);
  expect(logs.map(({ message }) => message).join()).toMatch(/PATH.*launch_commands/s);
  const listed = await client.devboxes.logs.list(devbox.id);
  expect(listed.logs.map(({ message }) => message)).toEqual(logs.map(({ message }) => message));
  const session = await server.call("GET", `/v1/sessions/${axon.id}`);
  expect(session.text).not.toContain("sk-secret");
});

verifies(
  "RUNLOOP-A12",
  "wait_for_status holds for a while and then answers 408, at which a client asks again",
  async () => {
    await using server = await startServer({ tuning: { runloop: { holdMs: 150 } } });
    const client = runloopClient(server.url);
    const { devbox } = await mountedAxon(client);
    const wait = (statuses: string[]) =>
      server.call("POST", `/v1/devboxes/${devbox.id}/wait_for_status`, { body: { statuses } });
    const startedMs = Date.now();
    const late = await wait(["suspended"]);
    expect([late.status, Date.now() - startedMs >= 145]).toEqual([408, true]);
    expect((await wait(["running", "failure"])).body).toMatchObject({ id: devbox.id, status: "running" });
    const suspended = client.devboxes.awaitSuspended(devbox.id);
    await client.devboxes.suspend(devbox.id);
    expect((await suspended).status).toBe("suspended");
  },
);

verifies("RUNLOOP-A13", "what of a devbox is not served answers 501, and not to try again", async () => {
  await using server = await startServer();
  const client = runloopClient(server.url);
  const { devbox } = await mountedAxon(client);
  const notServed = { status: 501, headers: expect.objectContaining({ "x-should-retry": "false" }) };
  await expect(client.devboxes.execute(devbox.id, { command: "ls" })).rejects.toMatchObject(notServed);
  await expect(client.devboxes.diskSnapshots.list()).rejects.toMatchObject({ status: 404 });
  await expect(client.devboxes.readFileContents(devbox.id, { file_path: "x" })).rejects.toMatchObject(notServed);
  await expect(client.devboxes.snapshotDisk(devbox.id)).rejects.toMatchObject(notServed);
  expect((await server.call("POST", "/v1/devboxes/dbx_never/execute", { body: {} })).status).toBe(404);
});

verifies("RUNLOOP-A11B", "an empty body that says it is JSON is taken everywhere", async () => {
  await using server = await startServer();
  const client = runloopClient(server.url);
  const { devbox } = await mountedAxon(client);
  const bare = (call: string) =>
    server.call("POST", call, { headers: { "content-type": "application/json" }, raw: "" });
  expect((await bare("/v1/axons")).status).toBe(200);
  for (const call of ["keep_alive", "suspend", "resume", "shutdown"]) {
    expect([call, (await bare(`/v1/devboxes/${devbox.id}/${call}`)).status]).toEqual([call, 200]);
  }
});

test("a launch that fails is told at once, as failure and agent.error", async () => {
  await using server = await startServer({ behaviour: { exitCode: 3, stderr: "error: unknown option --wat" } });
  const client = runloopClient(server.url);
  const axon = await client.axons.create({});
  await expect(mountClaude(client, axon.id)).rejects.toThrow(/failure/);
  const [devbox] = (await client.devboxes.list()).devboxes;
  expect(devbox).toMatchObject({ status: "failure", failure_reason: "execution_failed" });
  using live = await watchAxon(client, axon.id);
  const error = payloadOf(await live.event(ofType("agent.error")));
  expect(error).toMatchObject({ devbox_id: devbox?.id, message: expect.stringContaining("unknown option --wat") });
  const [line] = (await client.devboxes.logs.list(devbox?.id ?? "")).logs;
  expect(line).toMatchObject({ level: "ERROR", message: expect.stringContaining("unknown option --wat") });
  expect(payloadOf(await live.event(ofType("devbox.failed")))).toMatchObject({ devbox_id: devbox?.id });
});

test("a suspended devbox has no agent, keeps what comes, and goes on when it is resumed", async () => {
  await using server = await startServer();
  const client = runloopClient(server.url);
  const { axon, devbox } = await mountedAxon(client);
  using live = await watchAxon(client, axon.id);
  await client.devboxes.suspend(devbox.id);
  expect((await client.devboxes.awaitSuspended(devbox.id)).status).toBe("suspended");
  await live.event(ofType("devbox.suspended"));
  await say(client, axon.id, "while you slept");
  await live.event(ofType("turn.queued"));
  expect((await client.devboxes.retrieve(devbox.id)).status).toBe("suspended");
  await client.devboxes.resume(devbox.id);
  const reply = await live.event(ofType("assistant"));
  expect(payloadOf(reply).message.content[0].text).toContain("while you slept");
  expect((await client.devboxes.retrieve(devbox.id)).status).toBe("running");
});

test("resume_triggers.axon_event wakes a suspended devbox; an answer is no question", async () => {
  await using server = await startServer();
  const client = runloopClient(server.url);
  const lifecycle = { resume_triggers: { axon_event: true } };
  const { axon, devbox } = await mountedAxon(client, { launch_parameters: { lifecycle } });
  await client.devboxes.suspend(devbox.id);
  await client.devboxes.awaitSuspended(devbox.id);
  using live = await watchAxon(client, axon.id);
  await answer(client, axon.id, "req-nobody-asked", {});
  await say(client, axon.id, "wake up");
  expect(payloadOf(await live.event(ofType("assistant"))).message.content[0].text).toContain("wake up");
});

test("an idle devbox is suspended or shut down, and one whose time is over too", async () => {
  await using server = await startServer({ tuning: { runloop: { sweepMs: 20 } } });
  const client = runloopClient(server.url);
  const idle = (on_idle: "suspend" | "shutdown") => ({
    launch_parameters: { lifecycle: { after_idle: { idle_time_seconds: 1, on_idle } } },
  });
  const [sleeps, ends, expires] = await Promise.all([
    mountedAxon(client, idle("suspend")),
    mountedAxon(client, idle("shutdown")),
    mountedAxon(client, { launch_parameters: { keep_alive_time_seconds: 2 } }),
  ]);
  expect((await client.devboxes.awaitSuspended(sleeps.devbox.id)).status).toBe("suspended");
  const reached = (id: string) =>
    server.call("POST", `/v1/devboxes/${id}/wait_for_status`, { body: { statuses: ["shutdown"] } });
  expect((await reached(ends.devbox.id)).body).toMatchObject({ status: "shutdown", shutdown_reason: "idle" });
  expect((await reached(expires.devbox.id)).body).toMatchObject({ shutdown_reason: "keep_alive_timeout" });
  // The next message wakes it.
  using live = await watchAxon(client, sleeps.axon.id);
  await say(client, sleeps.axon.id, "good morning");
  await live.event(ofType("assistant"));
});
