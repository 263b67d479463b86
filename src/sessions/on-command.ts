import type { Command, ControlRequest } from "../protocol/commands.ts";
import type { JsonObject } from "../protocol/json.ts";
import { stringField } from "../protocol/json.ts";
import { BrokerError } from "../protocol/problems.ts";
import { checkControl, requestIsPrivate } from "./controls.ts";
import { answerFromBroker } from "./on-agent-control.ts";
import type { Actor } from "./port.ts";
import { answerRequest, approveRequest, resolveRequest } from "./requests.ts";
import type { PendingControl } from "./state.ts";
import { startNext, withdrawTurn } from "./turns.ts";
import { change, type Draft, emit, tell, type Work } from "./work.ts";

type CommandOf<T extends Command["event_type"]> = Extract<Command, { event_type: T }>;

/** A new command (its id is known to be unused). Throws before anything is decided. @throws BrokerError */
export function onCommand(work: Work, command: Command, actor: Actor): void {
  const { phase } = work.state;
  if (phase.name === "ended" || (phase.name === "stopping" && phase.cause === "end")) {
    throw new BrokerError("session_ended", "The session has ended; create a new one.");
  }
  switch (command.event_type) {
    case "query":
      return onQuery(work, command, actor);
    case "control_request":
      return onControlRequest(work, command, actor);
    case "control_response":
      return onControlResponse(work, command, actor);
    case "control_cancel_request":
      return onControlCancel(work, command, actor);
  }
}

/** A command is an event too (contract 5): appended first, written to the agent second. */
function record(work: Work, command: Command, actor: Actor, payload: JsonObject, extra: Partial<Draft> = {}): number {
  return emit(work, {
    event_type: command.event_type,
    origin: actor.external === true ? "EXTERNAL_EVENT" : "USER_EVENT",
    source: actor.id,
    ...(actor.label !== undefined && { label: actor.label }),
    payload,
    command_id: command.id,
    ...extra,
  });
}

/** `payload.uuid` is set by the session: it is the turn's id, and what the CLI recognises a repeat by. */
function onQuery(work: Work, command: CommandOf<"query">, actor: Actor): void {
  const turnId = command.payload.uuid ?? work.newId();
  const { delivery } = command;
  const seq = record(work, command, actor, { ...command.payload, uuid: turnId }, { turn_id: turnId });
  change(work, { queue: [...work.state.queue, { turnId, seq, delivery }] });
  const busy = work.state.phase.name !== "live" || work.state.turns.length > 0 || work.state.queue.length > 1;
  if (busy) tell(work, "turn.queued", { turn_id: turnId, delivery }, turnId);
  wake(work);
  startNext(work);
}

/** Starts the agent of a session that has none, as a run of its own; after a crash not before its pause is over. */
export function wake(work: Work): void {
  const { phase } = work.state;
  if (work.state.parked || (phase.name !== "hibernated" && phase.name !== "failed")) return;
  if (phase.name === "hibernated" && (phase.wakeAtMs ?? 0) > work.now) return;
  change(work, {
    phase: { name: "starting", since: work.now, initializeId: `broker-${work.newId()}` },
    run: work.newId(),
    outbox: [],
    stdinId: 0,
  });
  work.lifecycle = "start";
}

function onControlRequest(work: Work, command: CommandOf<"control_request">, actor: Actor): void {
  const { request_id, request } = command.payload;
  checkControl(request);
  if (work.state.pending.some((item) => item.requestId === request_id)) {
    throw new BrokerError("request_id_in_use", "This session has used that request_id; choose a new one.", {
      details: { request_id },
    });
  }
  const restricted = requestIsPrivate(request.subtype) ? { restricted: true as const } : {};
  const seq = record(work, command, actor, { ...command.payload }, restricted);
  noteControl(work, request, request_id, actor);
  if (answeredHere(work, command.id, request_id, request)) return;
  const target = request.subtype === "cancel_async_message" ? stringField(request, "message_uuid") : undefined;
  const pending: PendingControl = {
    requestId: request_id,
    commandId: command.id,
    subtype: request.subtype,
    written: work.state.phase.name === "live",
    ...(target && { target }),
  };
  change(work, { pending: [...work.state.pending, pending] });
  // initialize was sent by the session itself; the client gets that answer.
  const line = request.subtype === "initialize" ? [] : [seq];
  if (work.state.phase.name === "live") work.stdin.push(...line);
  else change(work, { held: [...work.state.held, ...line] });
  wake(work);
}

function noteControl(work: Work, request: ControlRequest["request"], request_id: string, actor: Actor): void {
  const kind = request.subtype === "set_permission_mode" ? "mode" : "control";
  work.audits.push({
    kind,
    actor,
    request_id,
    subtype: request.subtype,
    decision: request,
    outcome: "accepted",
    seq: work.state.seq,
  });
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
      if (phase.name === "live") {
        const { stalled } = work.state;
        if (stalled !== undefined) change(work, { stalled: { ...stalled, interrupted: true } });
        // The CLI knows only of what it has; what waits here is told by us.
        const turn_ids = work.state.queue.map((queued) => queued.turnId);
        if (turn_ids.length > 0) tell(work, "turn.still_queued", { turn_ids });
        return false;
      }
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
function onControlResponse(work: Work, command: CommandOf<"control_response">, actor: Actor): void {
  const { open, line, decision, settles } = answerRequest(work, command.payload, actor);
  const seq = record(work, command, actor, line, open.turn_id === undefined ? {} : { turn_id: open.turn_id });
  if (!settles) return approveRequest(work, open, line, actor);
  resolveRequest(work, open.request_id, { outcome: "answered", decision, decided_by: actor.id });
  work.stdin.push(seq);
}

function onControlCancel(work: Work, command: CommandOf<"control_cancel_request">, actor: Actor): void {
  const { request_id } = command.payload;
  const pending = work.state.pending.find((item) => item.requestId === request_id);
  if (pending === undefined) {
    throw new BrokerError("request_unknown", "No control_request of yours with that id waits for an answer.", {
      details: { request_id },
    });
  }
  const seq = record(work, command, actor, { ...command.payload });
  if (work.state.phase.name === "live") work.stdin.push(seq);
}
