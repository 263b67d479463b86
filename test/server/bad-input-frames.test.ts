import { randomUUID } from "node:crypto";
import { expect } from "vitest";
import { startBystanders } from "../kit/bystanders.ts";
import { payloadField } from "../kit/payload-field.ts";
import { expectRefused } from "../kit/refused-command.ts";
import { startServer, type TestServer } from "../kit/server.ts";
import { verifies } from "../kit/verifies.ts";

/** Small limits, so that what is over them is quickly sent. In bytes. */
const LIMITS = { queryLimitBytes: 256 * 1024, inboundLimitBytes: 64 * 1024 };
const NOBODY = "ses_neverexistedneverexisted";

const control = (request: unknown, request_id: unknown = "r"): unknown => ({
  type: "control_request",
  request_id,
  request,
});

async function openRequest(server: TestServer, id: string): Promise<string> {
  using socket = await server.socket({ query: `?session=${id}` });
  await socket.command({ id: randomUUID(), session_id: id, event_type: "query", payload: { text: "!ask" } });
  const opened = await socket.next("event", (event) => event.event_type === "request.opened");
  return String(payloadField(opened, "request_id"));
}

verifies(
  "WS-FRAMES",
  "frames that are malformed, poisoned or of unknown kind are named and cost nothing else",
  async () => {
    await using server = await startServer();
    using bystanders = await startBystanders(server);
    const { socket, id } = bystanders;
    const frames = [
      "{",
      "",
      "[]",
      "null",
      '"ping"',
      '{"type":"nope"}',
      '{"type":"__proto__"}',
      '{"type":"toString"}',
      '{"type":"ping","extra":1}',
      '{"type":"subscribe"}',
      `{"type":"subscribe","session_id":"${id}","after":-1}`,
      `{"type":"subscribe","session_id":"${id}","after":1.5}`,
      `{"type":"subscribe","session_id":"${id}","after":1e400}`,
      `{"type":"subscribe","session_id":"${id}","__proto__":{"after":5}}`,
      `{"type":"command","session_id":"${"s".repeat(10_000)}","id":"x","event_type":"query","payload":{"text":"x"}}`,
      `${"[".repeat(30_000)}${"]".repeat(30_000)}`,
    ];
    for (const frame of frames) {
      socket.sendText(frame);
      expect((await socket.next("error")).code, frame.slice(0, 60)).toBe("bad_request");
      await bystanders.expectUnharmed(frame.slice(0, 60));
    }
    socket.sendText(Buffer.from([0xff]), true);
    expect((await socket.next("error")).code).toBe("bad_request");
    socket.send({ type: "ping" });
    await socket.next("pong");
  },
);

verifies(
  "P9-FOREIGN-404",
  "an unknown session and a foreign one get the same answer, byte for byte, on HTTP and WebSocket",
  async () => {
    await using server = await startServer();
    using bystanders = await startBystanders(server);
    const foreigner = await server.key(["viewer"], "others");
    const ids = [bystanders.id, NOBODY];
    for (const path of ["", "/events", "/events/stream", "/requests"]) {
      const answers = await Promise.all(
        ids.map((id) => server.call("GET", `/v1/sessions/${id}${path}`, { key: foreigner.key })),
      );
      expect(
        answers.map(({ status }) => status),
        path,
      ).toEqual([404, 404]);
      expect(answers[0]?.text, path).toBe(answers[1]?.text);
      expect(answers[0]?.body.error.code, path).toBe("not_found");
    }
    using socket = await server.socket({ key: foreigner.key });
    const frames = await Promise.all(
      ids.map(async (session_id) => {
        socket.send({ type: "subscribe", session_id });
        const subscribed = await socket.next("error", (frame) => frame.session_id === session_id);
        const command = { id: session_id, session_id, event_type: "query", payload: { text: "x" } };
        // The same but for what each was about.
        return [subscribed, await socket.command(command)].map((frame) => ({ ...frame, id: "", session_id: "" }));
      }),
    );
    expect(frames[0]).toEqual(frames[1]);
    expect(frames[0]?.map((frame) => ("code" in frame ? frame.code : ""))).toEqual(["not_found", "not_found"]);
    for (const odd of ["__proto__", "..", "%2e%2e", "a".repeat(5_000), "%00", "\u2028"]) {
      const { status } = await server.call("GET", `/v1/sessions/${encodeURIComponent(odd)}`);
      expect([400, 404, 414], odd.slice(0, 20)).toContain(status);
    }
    await bystanders.expectUnharmed("foreign sessions");
  },
);

verifies(
  "WS-LIMITS",
  "frames and bodies over their limit are refused; one over the largest closes its own socket only",
  async () => {
    await using server = await startServer({ options: LIMITS });
    using bystanders = await startBystanders(server);
    const { id, socket } = bystanders;
    const padded = (bytes: number) =>
      control({ subtype: "set_model", model: "m", padding: "p".repeat(bytes) }, randomUUID());
    await expectRefused(server, bystanders, {
      name: "a control over 64 KiB",
      code: "too_large",
      event_type: "control_request",
      payload: padded(LIMITS.inboundLimitBytes),
    });
    await bystanders.expectUnharmed("a control over its limit");
    const big = await server.call("POST", `/v1/sessions/${id}/turns`, {
      body: { text: "q".repeat(LIMITS.queryLimitBytes - 200), wait_s: 20 },
    });
    expect(big.body.outcome).toBe("completed");
    const bigger = await server.call("POST", `/v1/sessions/${id}/turns`, {
      body: { text: "q".repeat(LIMITS.queryLimitBytes) },
    });
    expect([bigger.status, bigger.body.error.code]).toEqual([413, "too_large"]);
    socket.sendText("x".repeat(LIMITS.queryLimitBytes + 1));
    expect((await socket.closed).code).toBe(1009);
    await bystanders.expectUnharmed("a frame over every limit");
  },
);

verifies("LOG-NUMBERS", "a cursor from the future is refused on every way to read", async () => {
  await using server = await startServer();
  using bystanders = await startBystanders(server);
  const { id, socket } = bystanders;
  for (const after of [1_000_000, 999_999_999_999_999]) {
    for (const path of ["events", "events/stream"]) {
      const { status, body } = await server.call("GET", `/v1/sessions/${id}/${path}?after=${after}`);
      expect([status, body.error.code], path).toEqual([400, "cursor_ahead"]);
    }
    const late = await server.call("GET", `/v1/sessions/${id}/events/stream`, {
      headers: { "last-event-id": String(after) },
    });
    expect(late.body.error.code).toBe("cursor_ahead");
    socket.send({ type: "subscribe", session_id: id, after });
    expect(await socket.next("error")).toMatchObject({ code: "cursor_ahead", session_id: id });
  }
  for (const after of ["-1", "1.5", "1e3", "0x10", "tail", "99999999999999999999"]) {
    const { status } = await server.call("GET", `/v1/sessions/${id}/events?after=${after}`);
    expect(status, after).toBe(400);
  }
  await bystanders.expectUnharmed("cursors from the future");
});

verifies(
  "REQUEST-VALID",
  "answers that are unknown, settled, another session's or malformed are refused before the agent sees them",
  async () => {
    await using server = await startServer();
    using bystanders = await startBystanders(server);
    const [asking, neighbour] = await Promise.all([server.session(), server.session()]);
    const [open, foreign] = await Promise.all([asking.id, neighbour.id].map((id) => openRequest(server, id)));
    const reply = (request_id: unknown, response: unknown, subtype = "success") => ({
      type: "control_response",
      response: { subtype, request_id, response },
    });
    const inAsking = { id: asking.id, socket: bystanders.socket };
    const refuse = (name: string, code: string, payload: unknown) =>
      expectRefused(server, inAsking, { name, code, event_type: "control_response", payload });
    await refuse("another session's request", "request_unknown", reply(foreign, { behavior: "allow" }));
    for (const response of [
      {},
      { behavior: "maybe" },
      { yes: true },
      { behavior: "allow", updatedInput: "rm -rf" },
      { behavior: "allow", updatedInput: [] },
      { behavior: "allow", updatedPermissions: {} },
      { behavior: "deny" },
      { behavior: "deny", message: 5 },
    ]) {
      await refuse(JSON.stringify(response), "invalid_answer", reply(open, response));
    }
    await refuse("an unknown subtype", "bad_request", reply(open, {}, "maybe"));
    await refuse("an answer that is a list", "bad_request", reply(open, []));
    await refuse("a request_id of another type", "bad_request", reply({ a: 1 }, {}));
    const { body } = await server.call("GET", `/v1/sessions/${asking.id}/requests`);
    expect(body.requests.map(({ request_id }: { request_id: string }) => request_id)).toEqual([open]);
    const allowed = { id: "the-one", event_type: "control_response", payload: reply(open, { behavior: "allow" }) };
    expect((await server.call("POST", `/v1/sessions/${asking.id}/commands`, { body: allowed })).status).toBe(202);
    await refuse("a second answer", "request_already_answered", reply(open, { behavior: "allow" }));
    const log = await server.call("GET", `/v1/sessions/${asking.id}/events?event_type=control_response`);
    const answers = log.body.events.filter(({ origin }: { origin: string }) => origin === "USER_EVENT");
    expect(answers.map(({ command_id }: { command_id: string }) => command_id)).toEqual(["the-one"]);
    await bystanders.expectUnharmed("bad answers");
  },
);
