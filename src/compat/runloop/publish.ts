import { randomUUID } from "node:crypto";
import { parseCommand } from "../../protocol/commands.schema.ts";
import type { Accepted, Command } from "../../protocol/commands.ts";
import type { RequestKind } from "../../protocol/events.ts";
import { type JsonObject, stringField } from "../../protocol/json.ts";
import { ID_LIMIT_CHARS } from "../../protocol/limits.ts";
import { BrokerError } from "../../protocol/problems.ts";
import { type Publication, parsePublication } from "../../protocol/runloop.schema.ts";
import type { Actor, Session } from "../../sessions/port.ts";
import { jsonObjectOf, storedPayload, timeOf } from "./axon-view.ts";
import { actorOf, axonOf, type RunloopCall, requestIdOf } from "./call.ts";

/** In UTF-8 (spec 1.2). */
const PAYLOAD_LIMIT_BYTES = 4 * 1024 * 1024;
/** What starts a turn, from a user or from another system. */
const TURN_TYPES = ["query", "user", "user.message"];
const CONTROL_TYPES = ["control_request", "control_response", "control_cancel_request"];
/** Why an answer did not count: its sender is not told by a failure, which would end a client that answers by default (spec 0.9). */
const REFUSALS = ["forbidden", "request_unknown", "request_already_answered", "request_settled"];

function refuseForged({ origin, payload }: Publication): void {
  if (origin === "SYSTEM_EVENT") {
    throw new BrokerError("bad_request", "origin: SYSTEM_EVENT is the broker's own. Publish as USER_EVENT.", {
      details: { field: "origin" },
    });
  }
  if (origin === "AGENT_EVENT") {
    throw new BrokerError("forbidden", "origin: AGENT_EVENT is for what an agent says. Publish as USER_EVENT.");
  }
  if (Buffer.byteLength(payload) > PAYLOAD_LIMIT_BYTES) {
    throw new BrokerError("too_large", `payload: is over ${PAYLOAD_LIMIT_BYTES} bytes. Send less.`);
  }
}

/** A stream-json user message, or, as a courtesy, `{text}`, `{content}` or plain text. */
function queryPayload(payload: string): JsonObject {
  const message = jsonObjectOf(payload);
  if (message === undefined) return { text: payload };
  if ("content" in message && !("message" in message)) {
    return { type: "user", message: { role: "user", content: message["content"] } };
  }
  return message;
}

/** The command that an event is to the agent, or undefined for one that is only kept. @throws BrokerError bad_request */
function commandOf({ event_type, origin, payload }: Publication, id: string): Command | undefined {
  if (TURN_TYPES.includes(event_type)) {
    return parseCommand({ id, event_type: "query", payload: queryPayload(payload), delivery: "after_turn" });
  }
  if (origin !== "USER_EVENT" || !CONTROL_TYPES.includes(event_type)) return undefined;
  return parseCommand({ id, event_type, payload: jsonObjectOf(payload) ?? null });
}

function answeredKind(session: Session, command: Command): RequestKind | undefined {
  if (command.event_type !== "control_response") return undefined;
  const { request_id } = command.payload.response;
  return session.view().open_requests.find((open) => open.request_id === request_id)?.kind;
}

async function submit({ context, principal }: RunloopCall, session: Session, command: Command, actor: Actor) {
  for (const action of context.auth.actionsOf(command, answeredKind(session, command))) {
    context.auth.allow(principal, action);
  }
  await context.devboxes.wake(session.id, actor);
  return session.command(command, actor);
}

/** Kept under one number for each answerer, however often it tries: who may only read cannot fill the log. */
function noteRefused(session: Session, command: Command, actor: Actor, error: unknown): Promise<Accepted> {
  const refused =
    command.event_type === "control_response" && error instanceof BrokerError && REFUSALS.includes(error.code);
  if (!refused) throw error;
  const { request_id } = command.payload.response;
  // Nothing waits for it any more, or ever did: not worth an event by somebody who may only read.
  if (error.code === "forbidden" && answeredKind(session, command) === undefined) {
    return Promise.resolve({ seq: session.log.head() });
  }
  const payload = { request_id, by: actor.id, code: error.code, message: error.message };
  const note = {
    id: `refused:${error.code}:${request_id}`.slice(0, ID_LIMIT_CHARS),
    event_type: "request.answer_refused",
    origin: "SYSTEM_EVENT" as const,
    payload: Buffer.from(JSON.stringify(payload)),
  };
  return session.note(note, { id: actor.id });
}

/** The devbox is shut down: who still asks its agent is told at once, and does not wait for two minutes. */
async function answerForNobody(
  { context }: RunloopCall,
  session: Session,
  { payload }: Publication,
  id: string,
): Promise<void> {
  const request_id = stringField(jsonObjectOf(payload), "request_id");
  if (request_id === undefined || (await context.devboxes.rows.countOf(session.id)) === 0) return;
  const response = { subtype: "error", request_id, error: "The devbox is shut down; nobody answers." };
  const line = Buffer.from(JSON.stringify({ type: "control_response", response }));
  const note = { id: `nobody:${id}`.slice(0, ID_LIMIT_CHARS), event_type: "control_response", payload: line } as const;
  await session.note({ ...note, origin: "AGENT_EVENT" }, { id: "broker" });
}

async function take(call: RunloopCall, session: Session, event: Publication): Promise<Accepted> {
  const { auth, devboxes } = call.context;
  const id = requestIdOf(call.request) ?? randomUUID();
  const plain = actorOf(call);
  const external = event.origin === "EXTERNAL_EVENT";
  const actor: Actor = { ...plain, label: event.source, ...(external && { external }) };
  const command = session.agentStanding() === "none" ? undefined : commandOf(event, id);
  if (command !== undefined) {
    return submit(call, session, command, actor).catch((error: unknown) => noteRefused(session, command, plain, error));
  }
  auth.allow(call.principal, "drive");
  const { event_type, origin, payload } = event;
  if (origin !== "USER_EVENT" && origin !== "EXTERNAL_EVENT") throw new BrokerError("internal", "A forged origin.");
  const note = { id, event_type, origin, payload: storedPayload(payload) };
  const accepted = await session.note(note, actor);
  await devboxes.wake(session.id, plain);
  if (origin === "USER_EVENT" && event_type === "control_request") await answerForNobody(call, session, event, id);
  return accepted;
}

/** POST /v1/axons/{id}/publish. A repeat with the same x-request-id gets the first one's number. */
export async function publish(call: RunloopCall): Promise<unknown> {
  const session = await axonOf(call);
  const event = parsePublication(call.request.body);
  refuseForged(event);
  const { seq } = await take(call, session, event);
  const kept = await session.log.read(seq);
  return { sequence: seq, timestamp_ms: kept === undefined ? Date.now() : timeOf(kept) };
}
