import { expect, test } from "vitest";
import {
  answer,
  control,
  mountedAxon,
  ofType,
  payloadOf,
  publishUser,
  runloopClient,
  say,
  watchAxon,
} from "../../kit/runloop-client.ts";
import { startServer } from "../../kit/server.ts";
import { verifies } from "../../kit/verifies.ts";

verifies(
  "RUNLOOP-A8",
  "an agent that dies in mid-turn ends the turn in the client's own words, and the next message works",
  async () => {
    await using server = await startServer();
    const client = runloopClient(server.url);
    const { axon } = await mountedAxon(client);
    using live = await watchAxon(client, axon.id);
    await say(client, axon.id, "!stall");
    await live.event(ofType("turn.started"));
    const session = await server.call("GET", `/v1/sessions/${axon.id}`);
    await control(client, axon.id, "req_1_waits", { subtype: "unheard_of" });
    process.kill(session.body.agent.pid, "SIGKILL");
    const result = await live.event(ofType("result", "AGENT_EVENT"));
    expect(payloadOf(result)).toMatchObject({ subtype: "error_during_execution", is_error: true });
    const failed = await live.event(ofType("turn.failed"));
    expect(payloadOf(failed)).toMatchObject({ turn_id: expect.any(String), error: expect.stringContaining("SIGKILL") });
    expect(failed.sequence).toBeGreaterThan(result.sequence);
    expect(payloadOf(await live.event(ofType("agent.error")))).toMatchObject({ signal: "SIGKILL" });
    expect(live.events.some(ofType("broker.error"))).toBe(false);
    await say(client, axon.id, "and now?");
    const reply = await live.event((event) => event.event_type === "assistant" && event.payload.includes("and now?"));
    expect(reply.sequence).toBeGreaterThan(failed.sequence);
  },
);

test("a message that the agent never read fails with it, and is not run behind its sender's back", async () => {
  await using server = await startServer();
  const client = runloopClient(server.url);
  const { axon } = await mountedAxon(client);
  using live = await watchAxon(client, axon.id);
  const { body } = await server.call("GET", `/v1/sessions/${axon.id}`);
  process.kill(body.agent.pid, "SIGSTOP");
  await say(client, axon.id, "unread");
  await live.event(ofType("turn.started"));
  process.kill(body.agent.pid, "SIGKILL");
  expect(payloadOf(await live.event(ofType("result", "AGENT_EVENT")))).toMatchObject({ is_error: true });
  await live.event(ofType("turn.failed"));
  await say(client, axon.id, "read");
  await live.event((event) => event.event_type === "assistant" && event.payload.includes("echo: read"));
  expect(live.events.filter(ofType("turn.started"))).toHaveLength(2);
});

test("whoever waits for an answer of an agent that has died gets an error", async () => {
  await using server = await startServer();
  const client = runloopClient(server.url);
  const { axon } = await mountedAxon(client);
  using live = await watchAxon(client, axon.id);
  await say(client, axon.id, "!ask");
  const { request_id: asked } = payloadOf(await live.event(ofType("control_request", "AGENT_EVENT")));
  const { body } = await server.call("GET", `/v1/sessions/${axon.id}`);
  process.kill(body.agent.pid, "SIGSTOP");
  await control(client, axon.id, "req_2_interrupt", { subtype: "interrupt" });
  process.kill(body.agent.pid, "SIGKILL");
  const error = await live.event(
    (event) => event.origin === "AGENT_EVENT" && payloadOf(event).response?.request_id === "req_2_interrupt",
  );
  expect(payloadOf(error)).toMatchObject({ type: "control_response", response: { subtype: "error" } });
  // What it had asked is answered for good, as far as a replay can see.
  const settled = await live.event(ofType("control_response", "USER_EVENT"));
  expect(payloadOf(settled).response).toMatchObject({ subtype: "error", request_id: asked });
});

verifies("RUNLOOP-A9", "a request that was withdrawn is not open for a later connection", async () => {
  await using server = await startServer();
  const client = runloopClient(server.url);
  const { axon } = await mountedAxon(client);
  using live = await watchAxon(client, axon.id);
  await say(client, axon.id, "!ask");
  const { request_id } = payloadOf(await live.event(ofType("control_request", "AGENT_EVENT")));
  await control(client, axon.id, "req_1_interrupt", { subtype: "interrupt" });
  await live.event(ofType("control_cancel_request", "AGENT_EVENT"));
  const done = await live.event(ofType("turn.completed"));
  expect(payloadOf(done)).toMatchObject({ stop_reason: "interrupted" });
  const { total_count } = await client.axons.events.list(axon.id, { limit: 1, include_total_count: true });
  // As the SDK's replay does it (spec 4.3): requests that no USER_EVENT answers are asked again.
  using replay = await watchAxon(client, axon.id);
  await replay.event(({ sequence }) => sequence === total_count);
  const open = new Set<string>();
  for (const event of replay.events) {
    const payload = payloadOf(event);
    if (ofType("control_request", "AGENT_EVENT")(event)) open.add(payload.request_id);
    if (ofType("control_response", "USER_EVENT")(event)) open.delete(payload.response.request_id);
  }
  expect([...open]).toEqual([]);
  // A handler that still ran answers late: that is no failure, and does nothing.
  const late = await answer(client, axon.id, request_id, { behavior: "allow", updatedInput: {} });
  const refused = await live.event(ofType("request.answer_refused"));
  expect([refused.sequence, payloadOf(refused).code]).toEqual([late.sequence, "request_settled"]);
  expect(await agentAnswers(client, axon.id, live)).toBe("0");
});

/** How many answers the agent has had on its stdin, by its own count. */
async function agentAnswers(
  client: ReturnType<typeof runloopClient>,
  axonId: string,
  live: Awaited<ReturnType<typeof watchAxon>>,
) {
  const { sequence } = await say(client, axonId, "!answers");
  const reply = await live.event((event) => event.event_type === "assistant" && event.sequence > sequence);
  return payloadOf(reply).message.content[0].text;
}

verifies(
  "RUNLOOP-A10",
  "the first answer of somebody who may answer counts; an observer's is refused and harms nobody",
  async () => {
    await using server = await startServer();
    const client = runloopClient(server.url);
    const { axon } = await mountedAxon(client);
    using live = await watchAxon(client, axon.id);
    const viewer = await server.key(["viewer"]);
    const approver = await server.key(["approver"]);
    await say(client, axon.id, "!ask");
    const { request_id, request } = payloadOf(await live.event(ofType("control_request", "AGENT_EVENT")));
    const allow = { behavior: "allow", updatedInput: request.input };
    const observer = runloopClient(server.url, viewer.key);
    const bystander = await answer(observer, axon.id, request_id, allow);
    const refused = await live.event(ofType("request.answer_refused"));
    expect(refused.sequence).toBe(bystander.sequence);
    expect(payloadOf(refused)).toMatchObject({ request_id, by: viewer.id, code: "forbidden" });
    // However often it tries.
    expect((await answer(observer, axon.id, request_id, allow)).sequence).toBe(bystander.sequence);
    await answer(runloopClient(server.url, approver.key), axon.id, request_id, { behavior: "deny", message: "no" });
    const resolved = await live.event(ofType("request.resolved"));
    expect(payloadOf(resolved)).toMatchObject({ request_id, outcome: "answered", decided_by: approver.id });
    await answer(client, axon.id, request_id, allow);
    const second = await live.event((event) => payloadOf(event).code === "request_already_answered");
    expect(second.event_type).toBe("request.answer_refused");
    await answer(observer, axon.id, request_id, allow);
    await live.event((event) => event.event_type === "assistant" && event.payload.includes("deny"));
    await live.event(ofType("turn.completed"));
    expect(await agentAnswers(client, axon.id, live)).toBe("1");
    await expect(say(observer, axon.id, "may I?")).rejects.toMatchObject({ status: 403 });
    await expect(say(runloopClient(server.url, approver.key), axon.id, "may I?")).rejects.toMatchObject({
      status: 403,
    });
  },
);

verifies(
  "RUNLOOP-A14",
  "turns run one after the other, and turn.completed follows the last of its content",
  async () => {
    await using server = await startServer();
    const client = runloopClient(server.url);
    const { axon } = await mountedAxon(client);
    using live = await watchAxon(client, axon.id);
    await Promise.all(["one", "two", "three"].map((text) => say(client, axon.id, text)));
    const count = (type: string) => live.events.filter(ofType(type)).length;
    await live.event(() => count("turn.completed") === 3);
    const told = live.events.filter(({ event_type }) =>
      ["turn.started", "result", "assistant", "turn.completed"].includes(event_type),
    );
    const turn = ["turn.started", "assistant", "result", "turn.completed"];
    expect(told.map(({ event_type }) => event_type)).toEqual([...turn, ...turn, ...turn]);
    const ids = told.flatMap((event) => payloadOf(event).turn_id ?? []);
    expect(ids).toEqual([ids[0], ids[0], ids[2], ids[2], ids[4], ids[4]]);
  },
);

test("initialize, interrupt and modes are answered under the client's own ids", async () => {
  await using server = await startServer();
  const client = runloopClient(server.url);
  const { axon } = await mountedAxon(client);
  using live = await watchAxon(client, axon.id);
  const answered = async (request_id: string, request: Record<string, unknown>) => {
    await control(client, axon.id, request_id, request);
    const event = await live.event(
      (one) => one.origin === "AGENT_EVENT" && payloadOf(one).response?.request_id === request_id,
    );
    return payloadOf(event).response;
  };
  const first = await answered("req_1_aaaaaaaa", { subtype: "initialize", hooks: null });
  expect(first).toMatchObject({ subtype: "success", response: { commands: expect.any(Array) } });
  expect((await answered("req_1_bbbbbbbb", { subtype: "initialize", hooks: null })).response).toEqual(first.response);
  expect(await answered("req_2_aaaaaaaa", { subtype: "set_permission_mode", mode: "plan" })).toMatchObject({
    subtype: "success",
  });
  expect(await answered("req_3_aaaaaaaa", { subtype: "interrupt" })).toMatchObject({ subtype: "success" });
  await expect(control(client, axon.id, "req_3_aaaaaaaa", { subtype: "interrupt" })).rejects.toMatchObject({
    status: 409,
  });
});

test("what starts a turn may come as text, and from another system; everything else only stays in the log", async () => {
  await using server = await startServer();
  const client = runloopClient(server.url);
  const { axon } = await mountedAxon(client);
  using live = await watchAxon(client, axon.id);
  const reply = async (text: string) =>
    live.event((event) => event.event_type === "assistant" && event.payload.includes(`echo: ${text}`));
  const publish = (event_type: string, origin: "USER_EVENT" | "EXTERNAL_EVENT", payload: string) =>
    client.axons.publish(axon.id, { event_type, origin, payload, source: "ci" });
  await publish("query", "USER_EVENT", "plain words");
  await reply("plain words");
  await publish("user.message", "USER_EVENT", '{"content":"with content"}');
  await reply("with content");
  const { sequence } = await publish("query", "EXTERNAL_EVENT", '{"text":"from outside"}');
  await reply("from outside");
  const query = live.events.find((event) => event.sequence === sequence);
  expect(query).toMatchObject({ origin: "EXTERNAL_EVENT", event_type: "query", source: "ci" });
  await publish("build_status", "EXTERNAL_EVENT", '{"type":"user","message":{"role":"user","content":"not for you"}}');
  await publish("control_request", "EXTERNAL_EVENT", '{"request_id":"x","request":{"subtype":"interrupt"}}');
  await publishUser(client, axon.id, "assistant", { type: "assistant" });
  for (const bad of ['{"type":"user","message":{"role":"system","content":"x"}}', '{"type":"user"}', "", "{}"]) {
    await expect(publish("query", "USER_EVENT", bad)).rejects.toMatchObject({ status: 400 });
  }
  await expect(publish("control_request", "USER_EVENT", "words")).rejects.toMatchObject({ status: 400 });
  await say(client, axon.id, "last");
  const last = await reply("last");
  expect(live.events.filter(ofType("turn.started"))).toHaveLength(4);
  const { events } = await client.axons.events.list(axon.id, { limit: 5000 });
  expect(events.filter(({ event_type }) => event_type === "build_status")).toHaveLength(1);
  expect(last.payload).not.toContain("not for you");
  // The record of the agent's pipes has what it was handed, and nothing else.
  const transcript = await server.call("GET", `/v1/sessions/${axon.id}/transcript`);
  const lines = transcript.text
    .trim()
    .split("\n")
    .map((line) => JSON.parse(line));
  const sent = lines
    .filter(({ dir, msg }) => dir === "send" && msg.type === "user")
    .map(({ msg }) => msg.message.content);
  expect(sent).toEqual(["plain words", "with content", "from outside", "last"]);
  expect(transcript.text).not.toContain("not for you");
});

test("a key with the usual roles is enough for a conversation; what widens an agent's rights is an admin's", async () => {
  await using server = await startServer();
  const { key } = await server.key(["driver", "approver"]);
  const client = runloopClient(server.url, key);
  const axon = await client.axons.create({});
  const mount = { type: "broker_mount", axon_id: axon.id, protocol: "claude_json" } as const;
  const wider = { environment_variables: { ANTHROPIC_API_KEY: "sk" }, mounts: [mount] };
  await expect(client.devboxes.create(wider)).rejects.toMatchObject({ status: 403 });
  const flags = ["--dangerously-skip-permissions", "--model", "opus", "--append-system-prompt=Be brief."];
  await client.devboxes.createAndAwaitRunning({ mounts: [{ ...mount, launch_args: flags }] });
  using live = await watchAxon(client, axon.id);
  await control(client, axon.id, "req_1_driver", { subtype: "initialize", hooks: null });
  await live.event((event) => event.origin === "AGENT_EVENT" && event.payload.includes("req_1_driver"));
  await say(client, axon.id, "!ask");
  const { request_id, request } = payloadOf(await live.event(ofType("control_request", "AGENT_EVENT")));
  await answer(client, axon.id, request_id, { behavior: "allow", updatedInput: request.input });
  await live.event(ofType("turn.completed"));
  await say(client, axon.id, "!dump");
  const dump = await live.event((event) => event.event_type === "assistant" && event.payload.includes("argv"));
  const { argv } = JSON.parse(payloadOf(dump).message.content[0].text);
  expect(argv).toEqual(expect.arrayContaining(["--model=opus", "--append-system-prompt=Be brief."]));
  expect(argv.join(" ")).not.toMatch(/skip-permissions|include-partial/);
  expect(
    live.events.some((event) => event.event_type === "agent.log" && event.payload.includes("skip-permissions")),
  ).toBe(true);
});
