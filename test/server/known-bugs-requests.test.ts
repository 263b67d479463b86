import { randomUUID } from "node:crypto";
import { expect } from "vitest";
import { connect as connectClient } from "../../src/client/index.ts";
import { startFaultProxy } from "../kit/fault-proxy.ts";
import { makeKillableServer } from "../kit/killable-server.ts";
import { payloadField } from "../kit/payload-field.ts";
import { seededRandom } from "../kit/seeded-random.ts";
import { startServer, type TestServer } from "../kit/server.ts";
import { verifies } from "../kit/verifies.ts";
import { connect, type EventFrame, type WsClient } from "../kit/ws-client.ts";

const SEED = 20_261_130;

const allow = (request_id: string) => ({
  type: "control_response",
  response: { subtype: "success", request_id, response: { behavior: "allow" } },
});

async function begin(server: TestServer, id: string, text: string): Promise<string> {
  const uuid = randomUUID();
  const body = { id: uuid, event_type: "query", payload: { text, uuid } };
  const { status } = await server.call("POST", `/v1/sessions/${id}/commands`, { body });
  expect(status).toBe(202);
  return uuid;
}

const opened = (socket: WsClient, after = 0): Promise<EventFrame> =>
  socket.next("event", (event) => event.event_type === "request.opened" && event.seq > after);

/** How often a client on this socket would offer the request to its person (contract 5). */
function offers(socket: WsClient, requestId: string): number {
  let head = 0;
  let count = 0;
  for (const { frame } of socket.received) {
    if (frame.type === "subscribed") {
      head = frame.head;
      count += frame.open_requests.filter(({ request_id }) => request_id === requestId).length;
    } else if (frame.type === "event" && frame.event_type === "request.opened" && frame.seq > head) {
      count += payloadField(frame, "request_id") === requestId ? 1 : 0;
    }
  }
  return count;
}

verifies(
  "P6-ONE-ANSWER",
  "known bug 4: a question that nobody sees stays a question; who comes later answers it, word for word",
  async () => {
    await using server = await startServer();
    const { id } = await server.session();
    // Waits as a caller does: no end comes within a second, with no client anywhere.
    const asked = await server.call("POST", `/v1/sessions/${id}/turns`, { body: { text: "!question", wait_s: 1 } });
    expect(asked.status).toBe(202);
    const view = (await server.call("GET", `/v1/sessions/${id}`)).body;
    expect(view).toMatchObject({ state: "requires_action", open_requests: [{ kind: "question" }] });
    const log = await server.call("GET", `/v1/sessions/${id}/events`);
    const types = log.body.events.map(({ event_type }: EventFrame) => event_type);
    expect(types).not.toContain("request.resolved");
    expect(types).not.toContain("result");
    const client = connectClient({ url: server.url, token: server.adminKey });
    const session = client.session(id);
    const answers = { "Which colour?": "neither — “mauve”, s'il vous plaît" };
    session.onRequest((request) => request.answer(answers));
    for await (const event of session.events()) {
      if (event.event_type !== "result") continue;
      const [told] = JSON.parse(String(payloadField(event, "result")));
      expect(told.response.updatedInput.answers).toEqual(answers);
      break;
    }
    client.close();
  },
);

verifies(
  "WS-SUBSCRIBE",
  "known bug 8a-c: an open request is offered once to each client that comes back, wherever its cursor is",
  async () => {
    await using server = await startServer();
    const { id } = await server.session();
    using first = await server.socket({ query: `?session=${id}` });
    await begin(server, id, "!ask");
    const request = await opened(first);
    const requestId = String(payloadField(request, "request_id"));
    first.socket.terminate();
    const cursors = [request.seq - 1, request.seq, 0, "head"];
    const sockets = await Promise.all(
      cursors.map((after) => server.socket({ query: `?session=${id}&after=${after}` })),
    );
    for (const socket of sockets) await socket.next("subscribed");
    const command = { id: "answer", session_id: id, event_type: "control_response", payload: allow(requestId) };
    expect((await sockets[0]?.command(command))?.type).toBe("ack");
    for (const [index, socket] of sockets.entries()) {
      await socket.next("event", (event) => event.event_type === "turn.completed");
      expect(offers(socket, requestId), `after=${cursors[index]}`).toBe(1);
      socket[Symbol.dispose]();
    }
  },
);

verifies(
  "REQUEST-SETTLED",
  "known bug 8d: after a crash of the server the request is lost and said so, never offered again, and the next one works",
  async () => {
    await using server = makeKillableServer();
    const life = await server.start();
    const { id } = (await life.call("POST", "/v1/sessions", { body: {} })).body;
    using before = await life.socket({ query: `?session=${id}` });
    await before.command({ id: "ask", session_id: id, event_type: "query", payload: { text: "!ask" } });
    const requestId = String(payloadField(await opened(before), "request_id"));
    await server.kill();
    const next = await server.start();
    using after = await next.socket({ query: `?session=${id}` });
    const { head } = await after.next("subscribed");
    await after.next("event", (event) => event.seq === head);
    expect(offers(after, requestId)).toBe(0);
    const resolved = after.events(id).filter((event) => event.event_type === "request.resolved");
    expect(resolved.map(({ payload }) => payload)).toEqual([{ request_id: requestId, outcome: "lost" }]);
    const late = { id: "late", session_id: id, event_type: "control_response", payload: allow(requestId) };
    expect(await after.command(late)).toMatchObject({ type: "error", code: "request_settled" });
    await after.command({ id: "again", session_id: id, event_type: "query", payload: { text: "!ask" } });
    const again = String(payloadField(await opened(after, head), "request_id"));
    await after.command({ id: "yes", session_id: id, event_type: "control_response", payload: allow(again) });
    await after.next("event", (event) => event.event_type === "turn.completed");
  },
);

verifies(
  "CLIENT-RESEND",
  "known bug 15: an approval whose link breaks before the ack is applied once, sent again over a socket or HTTP",
  async () => {
    await using server = await startServer();
    await using proxy = await startFaultProxy(server.broker.port);
    const { id } = await server.session();
    using watcher = await server.socket({ query: `?session=${id}` });
    const random = seededRandom(SEED);
    const headers = { authorization: `Bearer ${server.adminKey}` };
    let last = 0;
    for (let round = 0; round < 12; round += 1) {
      await begin(server, id, "!ask");
      const request = await opened(watcher, last);
      const command = {
        id: `tap-${round}`,
        session_id: id,
        event_type: "control_response",
        payload: allow(String(payloadField(request, "request_id"))),
      };
      // The link breaks somewhere between the tap and its ack.
      proxy.cutNextAfter(700 + Math.floor(random() * 1_200));
      const phone = await connect(proxy.url, { headers, query: `?session=${id}&after=${request.seq}` }).catch(
        () => undefined,
      );
      phone?.send({ type: "command", ...command });
      if (random() < 0.5) proxy.cut();
      await phone?.closed;
      const { session_id: _, ...body } = command;
      const overHttp = await server.call("POST", `/v1/sessions/${id}/commands`, { body });
      expect(overHttp.status).toBe(202);
      using back = await connect(proxy.url, { headers });
      expect(await back.command(command)).toEqual({
        type: "ack",
        id: command.id,
        seq: overHttp.body.seq,
        duplicate: true,
      });
      last = (await watcher.next("event", (event) => event.event_type === "turn.completed" && event.seq > request.seq))
        .seq;
    }
    const answers = watcher
      .events(id)
      .filter((event) => event.event_type === "control_response" && event.origin === "USER_EVENT");
    expect(answers.map(({ command_id }) => command_id)).toEqual(
      Array.from({ length: 12 }, (__, round) => `tap-${round}`),
    );
  },
);
