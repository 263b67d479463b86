import { randomUUID } from "node:crypto";
import { BrokerError } from "../../protocol/problems.ts";
import { type NewTurn, parseNewTurn } from "../../protocol/sessions.schema.ts";
import type { TurnEnd } from "../../sessions/port.ts";
import { actorOf } from "../actor.ts";
import { type Call, type Route, sessionOf } from "../context.ts";
import { readCommand, submit } from "../submit.ts";

async function command(call: Call): Promise<unknown> {
  const { context, principal, request, reply } = call;
  const session = await sessionOf(call);
  const accepted = await submit(context, {
    session,
    principal,
    actor: actorOf(call),
    body: request.body,
    bytes: request.bodyBytes,
  });
  return reply.code(202).send(accepted);
}

/** `message` is a stream-json user message, whole or only its inner `{role, content}`. */
function payloadOf({ text, message }: NewTurn): unknown {
  if (message === undefined) return { text };
  return "role" in message && !("message" in message) ? { message } : message;
}

/** The turn's end, or undefined when the caller's patience, the connection or the server ends first. */
async function endWithin(ended: Promise<TurnEnd>, waitMs: number, call: Call): Promise<TurnEnd | undefined> {
  const { promise: over, resolve } = Promise.withResolvers<undefined>();
  const giveUp = (): void => resolve(undefined);
  const { draining } = call.context.live;
  const timer = setTimeout(giveUp, waitMs);
  call.reply.raw.once("close", giveUp);
  draining.addEventListener("abort", giveUp, { once: true });
  try {
    return await Promise.race([ended, over]);
  } finally {
    clearTimeout(timer);
    draining.removeEventListener("abort", giveUp);
  }
}

async function turn(call: Call): Promise<unknown> {
  const { context, principal, request, reply } = call;
  const session = await sessionOf(call);
  const input = parseNewTurn(request.body);
  const body = { id: input.id ?? randomUUID(), event_type: "query", payload: payloadOf(input) };
  const query = readCommand(context, { session, principal, body, bytes: request.bodyBytes });
  if (query.event_type !== "query") throw new BrokerError("internal", "A turn is a query.");
  const started = await session.turn(query, actorOf(call));
  context.metrics.command("query", started.duplicate ? "duplicate" : "accepted");
  const waitMs = (input.wait_s ?? 0) * 1000;
  const end = waitMs > 0 ? await endWithin(started.ended, waitMs, call) : undefined;
  if (end !== undefined) return end;
  const { turn_id, seq, duplicate } = started;
  return reply.code(202).send({ turn_id, seq, ...(duplicate && { duplicate }) });
}

export const COMMAND_ROUTES: readonly Route[] = [
  { method: "POST", url: "/v1/sessions/:id/commands", access: "read", carriesQuery: true, handle: command },
  { method: "POST", url: "/v1/sessions/:id/turns", access: "drive", carriesQuery: true, handle: turn },
];
