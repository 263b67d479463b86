import { expect } from "vitest";
import { WEBHOOK_EVENTS } from "../../src/protocol/webhooks.ts";
import { makeKillableServer } from "../kit/killable-server.ts";
import { verifies } from "../kit/verifies.ts";
import { answering, type Received, startReceiver } from "../kit/webhook-receiver.ts";

const PUBLIC_URL = "https://patchbay.example";
const isTold = ({ event_type }: { event_type: string }): boolean => WEBHOOK_EVENTS.some((name) => name === event_type);
const isAsk = ({ body }: Received): boolean => body.event_type === "request.opened";

verifies("WEBHOOKS", "kill -9 loses no delivery that the log shows, and ends the links of that life", async () => {
  await using receiver = await startReceiver((response, call) => answering(isAsk(call) ? 503 : 204)(response, call));
  await using server = makeKillableServer({ webhookAllowedHosts: ["127.0.0.1"], publicUrl: PUBLIC_URL });
  const first = await server.start();
  await first.call("POST", "/v1/webhooks", { body: { url: receiver.url } });
  const { id } = (await first.call("POST", "/v1/sessions", { body: { prompt: "!ask" } })).body;
  const asked = await receiver.first(isAsk);
  await server.kill();

  const before = receiver.received.length;
  receiver.react(answering(204));
  const second = await server.start();
  const answer = async ({ body }: Received) => {
    const options = { key: null, body: { response: { behavior: "allow" } } };
    const { status, body: said } = await second.call("POST", body.answer.url.replace(PUBLIC_URL, ""), options);
    return said.error?.code ?? status;
  };
  // Its answer was never taken, so it comes again, with a link of this life; the agent that asked is gone.
  const repeated = await receiver.first((call) => isAsk(call) && receiver.received.indexOf(call) >= before);
  expect(repeated.eventId).toBe(asked.eventId);
  expect(await answer(asked)).toBe("unauthenticated");
  expect(await answer(repeated)).toBe("request_settled");
  await second.call("POST", `/v1/sessions/${id}/turns`, { body: { text: "!ask" } });
  const next = await receiver.first((call) => isAsk(call) && call.eventId !== asked.eventId);
  expect(await answer(next)).toBe(202);
  const idle = await receiver.first(
    ({ body }) => body.event_type === "session.state" && body.payload.state === "idle" && body.seq > next.body.seq,
  );

  const log = await second.call("GET", `/v1/sessions/${id}/events?limit=1000`);
  const told = log.body.events.filter(isTold).filter(({ seq }: { seq: number }) => seq <= idle.body.seq);
  // A Map keeps the place of the first call with an id.
  const delivered = [...new Map(receiver.received.map((call) => [call.eventId, call.body])).values()];
  expect(delivered.map(({ answer: _, ...envelope }) => envelope)).toEqual(told);
});
