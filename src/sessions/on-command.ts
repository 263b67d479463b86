import type { Command, ControlRequest } from "../protocol/commands.ts";
import type { JsonObject } from "../protocol/json.ts";
import { stringField } from "../protocol/json.ts";
import { BrokerError } from "../protocol/problems.ts";
import { checkAnswer } from "./answers.ts";
import { checkControl } from "./controls.ts";
import { answerFromBroker, resolveRequest } from "./on-agent-control.ts";
import type { PendingControl } from "./state.ts";
import { startNext, withdrawTurn } from "./turns.ts";
import { change, type Draft, emit, tell, type Work } from "./work.ts";

type CommandOf<T extends Command["event_type"]> = Extract<Command, { event_type: T }>;

/** A new command (its id is known to be unused). Throws before anything is decided. @throws BrokerError */
export function onCommand(work: Work, command: Command, actorId: string): void {
  const { name } = work.state.phase;
  if (name === "ended" || name === "stopping") {
    throw new BrokerError("session_ended", "The session has ended; create a new one.");
  }
  switch (command.event_type) {
    case "query":
      return onQuery(work, command, actorId);
    case "control_request":
      return onControlRequest(work, command, actorId);
    case "control_response":
      return onControlResponse(work, command, actorId);
    case "control_cancel_request":
      return onControlCancel(work, command, actorId);
  }
}

/** A command is an event too (contract 5): appended first, written to the agent second. */
function record(
  work: Work,
  command: Command,
  actorId: string,
  payload: JsonObject,
  extra: Partial<Draft> = {},
): number {
  return emit(work, {
    event_type: command.event_type,
    origin: "USER_EVENT",
    source: actorId,
    payload,
    command_id: command.id,
    ...extra,
  });
}

/** `payload.uuid` is set by the session: it is the turn's id, and what the CLI recognises a repeat by. */
function onQuery(work: Work, command: CommandOf<"query">, actorId: string): void {
  const turnId = command.payload.uuid ?? work.newId();
  const { delivery } = command;
  const seq = record(work, command, actorId, { ...command.payload, uuid: turnId }, { turn_id: turnId });
  change(work, { queue: [...work.state.queue, { turnId, seq, delivery }] });
  const busy = work.state.phase.name !== "live" || work.state.turns.length > 0 || work.state.queue.length > 1;
  if (busy) tell(work, "turn.queued", { turn_id: turnId, delivery }, turnId);
  wake(work);
  startNext(work);
}

/** Starts the agent of a session that has none. */
export function wake(work: Work): void {
  const { name } = work.state.phase;
  if (name !== "hibernated" && name !== "failed") return;
  change(work, { phase: { name: "starting", since: work.now, initializeId: `broker-${work.newId()}` } });
  work.lifecycle = "start";
}

function onControlRequest(work: Work, command: CommandOf<"control_request">, actorId: string): void {
  const { request_id, request } = command.payload;
  checkControl(request);
  if (work.state.pending.some((item) => item.requestId === request_id)) {
    throw new BrokerError("request_id_in_use", "This session has used that request_id; choose a new one.", {
      details: { request_id },
    });
  }
  record(work, command, actorId, { ...command.payload });
  if (answeredHere(work, command.id, request_id, request)) return;
  const target = request.subtype === "cancel_async_message" ? stringField(request, "message_uuid") : undefined;
  const pending: PendingControl = {
    requestId: request_id,
    commandId: command.id,
    subtype: request.subtype,
    ...(target && { target }),
  };
  change(work, { pending: [...work.state.pending, pending] });
  // initialize was sent by the session itself; the client gets that answer.
  const line = request.subtype === "initialize" ? [] : [{ ...command.payload }];
  if (work.state.phase.name === "live") work.stdin.push(...line);
  else change(work, { held: [...work.state.held, ...line] });
  wake(work);
}

/** True when the broker can say the answer itself: cached, or about its own queue, or with no agent to interrupt. */
function answeredHere(work: Work, commandId: string, requestId: string, request: ControlRequest["request"]): boolean {
  const { phase, initialized } = work.state;
  switch (request.subtype) {
    case "initialize":
      if (phase.name !== "live" || initialized === undefined) return false;
      answerFromBroker(work, requestId, commandId, initialized, true);
      return true;
    case "cancel_async_message": {
      const target = stringField(request, "message_uuid") ?? "";
      if (!work.state.queue.some((queued) => queued.turnId === target)) return false;
      answerFromBroker(work, requestId, commandId, { cancelled: true, message_uuid: target }, false);
      withdrawTurn(work, target);
      return true;
    }
    case "interrupt": {
      const cancelled = request.cancel_queued === true ? work.state.queue.map((queued) => queued.turnId) : [];
      for (const turnId of cancelled) withdrawTurn(work, turnId);
      if (phase.name === "live") return false;
      // Nothing runs yet: there is nothing to stop, and what is queued stays queued unless it was to be cancelled.
      const still_queued = work.state.queue.map((queued) => queued.turnId);
      answerFromBroker(work, requestId, commandId, { still_queued, cancelled }, false);
      return true;
    }
    default:
      return false;
  }
}

/** The first valid answer wins; the session has looked up why a request is not open before this is reached. */
function onControlResponse(work: Work, command: CommandOf<"control_response">, actorId: string): void {
  const { request_id } = command.payload.response;
  const open = work.state.requests.find((request) => request.request_id === request_id);
  if (open === undefined) {
    throw new BrokerError("request_unknown", "This session has no open request with that id; read GET …/requests.", {
      details: { request_id },
    });
  }
  const { line, decision } = checkAnswer(open, command.payload);
  record(work, command, actorId, line, open.turn_id === undefined ? {} : { turn_id: open.turn_id });
  resolveRequest(work, request_id, { outcome: "answered", decision, decided_by: actorId });
  work.stdin.push(line);
}

function onControlCancel(work: Work, command: CommandOf<"control_cancel_request">, actorId: string): void {
  const { request_id } = command.payload;
  const pending = work.state.pending.find((item) => item.requestId === request_id);
  if (pending === undefined) {
    throw new BrokerError("request_unknown", "No control_request of yours with that id waits for an answer.", {
      details: { request_id },
    });
  }
  record(work, command, actorId, { ...command.payload });
  if (work.state.phase.name === "live") work.stdin.push({ ...command.payload });
}
