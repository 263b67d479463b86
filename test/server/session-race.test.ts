import { randomUUID } from "node:crypto";
import { expect } from "vitest";
import { isJsonObject } from "../../src/protocol/json.ts";
import { payloadField } from "../kit/payload-field.ts";
import { startServer, type TestServer } from "../kit/server.ts";
import { verifies } from "../kit/verifies.ts";
import type { EventFrame, WsClient } from "../kit/ws-client.ts";

const ROUNDS = 500;
const MILLISECOND = 1;

interface Side {
  readonly socket: WsClient;
  /** Id of its key. */
  readonly by: string;
}

async function side(server: TestServer, sessionId: string): Promise<Side> {
  const { id: by, key } = await server.key(["approver"]);
  const socket = await server.socket({ key, query: `?session=${sessionId}&previews=false` });
  return { socket, by };
}

const decisionOf = (behaviour: string) =>
  behaviour === "allow" ? { behavior: "allow" } : { behavior: "deny", message: "not this one" };

function answerOf(sessionId: string, requestId: string, behaviour: string) {
  const response = { subtype: "success", request_id: requestId, response: decisionOf(behaviour) };
  return {
    type: "command",
    id: randomUUID(),
    session_id: sessionId,
    event_type: "control_response",
    payload: { type: "control_response", response },
  };
}

const nextOf = (socket: WsClient, type: string, after: number): Promise<EventFrame> =>
  socket.next("event", (event) => event.event_type === type && event.seq > after);

/** What the agent says at a turn's end. */
async function resultAfter(socket: WsClient, after: number): Promise<string> {
  return String(payloadField(await nextOf(socket, "result", after), "result"));
}

/** The decision that the agent says it got. */
function toldBehaviour(result: string): unknown {
  const answers: unknown = JSON.parse(result);
  const [first] = Array.isArray(answers) ? answers : [];
  return isJsonObject(first) && isJsonObject(first.response) ? first.response.behavior : undefined;
}

/** Every answer in the audit record of a session, oldest first. */
async function recorded(server: TestServer, sessionId: string): Promise<unknown[][]> {
  const rows: unknown[][] = [];
  for (let after = 0; ; ) {
    const path = `/v1/audit?kind=answer&session_id=${sessionId}&limit=200&after=${after}`;
    const { status, body } = await server.call("GET", path);
    expect(status).toBe(200);
    for (const { request_id, actor, decision, outcome } of body.entries)
      rows.push([request_id, actor.id, decision.behavior, outcome]);
    if (body.entries.length === 0) return rows;
    after = body.next;
  }
}

verifies(
  "P6-ONE-ANSWER",
  `two clients answer within a millisecond, ${ROUNDS} rounds: one line reaches the agent, the loser is told who won, the audit agrees`,
  async () => {
    await using server = await startServer();
    const { id } = await server.session();
    const sides = [await side(server, id), await side(server, id)] as const;
    using driver = await server.socket({ query: `?session=${id}&previews=false` });
    const winners: unknown[][] = [];
    let seen = 0;
    let close = 0;
    for (let round = 0; round < ROUNDS; round++) {
      const query = { id: randomUUID(), session_id: id, event_type: "query", payload: { text: "!ask" } };
      expect(await driver.command(query)).toMatchObject({ type: "ack" });
      const [opened] = await Promise.all(sides.map(({ socket }) => nextOf(socket, "request.opened", seen)));
      const requestId = String(payloadField(opened, "request_id"));
      // Every second round the other one is first; every second pair of rounds the other one allows.
      const [first, second] = round % 2 === 0 ? sides : [sides[1], sides[0]];
      const [behaviour, opposite] = round % 4 < 2 ? ["allow", "deny"] : ["deny", "allow"];
      const answers = [answerOf(id, requestId, behaviour), answerOf(id, requestId, opposite)] as const;
      const sentAtMs = performance.now();
      first.socket.send(answers[0]);
      second.socket.send(answers[1]);
      if (performance.now() - sentAtMs < MILLISECOND) close += 1;
      const frames = await Promise.all([first.socket.answerTo(answers[0].id), second.socket.answerTo(answers[1].id)]);
      const isFirst = frames[0].type === "ack";
      const [winner, decision] = isFirst ? [first, behaviour] : [second, opposite];
      const [won, lost] = isFirst ? frames : frames.toReversed();
      expect(won).toMatchObject({ type: "ack" });
      expect(lost).toMatchObject({
        type: "error",
        code: "request_already_answered",
        details: { decided_by: winner.by, decision: decisionOf(decision), at_ms: expect.any(Number) },
      });
      for (const { socket } of sides) {
        expect((await nextOf(socket, "request.resolved", seen)).payload).toEqual({
          request_id: requestId,
          outcome: "answered",
          decision: decisionOf(decision),
          decided_by: winner.by,
        });
      }
      expect(toldBehaviour(await resultAfter(driver, seen))).toBe(decision);
      winners.push([requestId, winner.by, decision, "answered"]);
      seen = (await nextOf(driver, "turn.completed", seen)).seq;
    }
    expect(close).toBeGreaterThan(ROUNDS * 0.9);
    expect(new Set(winners.map(([, by]) => by)).size).toBe(2);
    const count = { id: randomUUID(), session_id: id, event_type: "query", payload: { text: "!answers" } };
    expect(await driver.command(count)).toMatchObject({ type: "ack" });
    expect(await resultAfter(driver, seen)).toBe(String(ROUNDS));
    expect(await recorded(server, id)).toEqual(winners);
    for (const { socket } of sides) socket[Symbol.dispose]();
  },
  120_000,
);
