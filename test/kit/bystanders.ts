import { randomUUID } from "node:crypto";
import { expect } from "vitest";
import { payloadField } from "./payload-field.ts";
import type { TestServer } from "./server.ts";
import type { WsClient } from "./ws-client.ts";

/** Two sessions of one server, and a second client with its own socket, that must not notice what a test does to the server. */
export interface Bystanders extends Disposable {
  /** The session that a test misuses. */
  readonly id: string;
  readonly socket: WsClient;
  /** A message works in both sessions, over HTTP and on the second client's old socket, with the agents that were there before. */
  expectUnharmed(what: string): Promise<void>;
}

export async function startBystanders(server: TestServer): Promise<Bystanders> {
  const [{ id }, other] = await Promise.all([server.session(), server.session()]);
  const socket = await server.socket();
  const second = await server.socket({ query: `?session=${other.id}` });
  const say = async (): Promise<string> => {
    const { body } = await server.call("POST", `/v1/sessions/${id}/turns`, {
      body: { text: "still there", wait_s: 20 },
    });
    return body.outcome;
  };
  const saySecond = async (): Promise<string> => {
    const uuid = randomUUID();
    const payload = { text: "me too", uuid };
    await second.command({ id: uuid, session_id: other.id, event_type: "query", payload });
    const ended = await second.next(
      "event",
      (event) =>
        event.turn_id === uuid &&
        event.event_type.startsWith("turn.") &&
        payloadField(event, "stop_reason") !== undefined,
    );
    return ended.event_type;
  };
  const pids = async (): Promise<unknown[]> =>
    Promise.all([id, other.id].map(async (one) => (await server.call("GET", `/v1/sessions/${one}`)).body.agent.pid));
  await Promise.all([say(), saySecond()]);
  const before = await pids();
  return {
    id,
    socket,
    async expectUnharmed(what) {
      expect(await Promise.all([say(), saySecond()]), what).toEqual(["completed", "turn.completed"]);
      expect(await pids(), what).toEqual(before);
      expect(second.socket.readyState, what).toBe(second.socket.OPEN);
    },
    [Symbol.dispose]() {
      socket[Symbol.dispose]();
      second[Symbol.dispose]();
    },
  };
}
