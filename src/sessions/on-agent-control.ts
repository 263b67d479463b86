import type { OpenRequest, RequestOutcome } from "../protocol/events.ts";
import { seq } from "../protocol/ids.ts";
import { isJsonObject, type JsonObject, stringField } from "../protocol/json.ts";
import { requestKind } from "../protocol/requests.ts";
import { answerIsPrivate, failure, success, unservedReason } from "./controls.ts";
import { startNext, withdrawTurn } from "./turns.ts";
import { change, type Draft, speakForAgent, tell, type Work } from "./work.ts";

type Forward = (extra: Partial<Draft>) => number;

/** A control line of the agent: a question of its own, an answer to ours, or a question that it takes back. */
export function onAgentControl(work: Work, message: JsonObject, forward: Forward): void {
  if (message.type === "control_response") return onAnswer(work, message, forward);
  forward({});
  const requestId = stringField(message, "request_id");
  if (requestId === undefined) return;
  if (message.type === "control_cancel_request") return resolveRequest(work, requestId, { outcome: "cancelled" });
  if (isJsonObject(message.request)) openRequest(work, requestId, message.request);
}

function openRequest(work: Work, requestId: string, request: JsonObject): void {
  // The CLI repeats a request only after a restart of its own making; the first one stands.
  if (work.state.requests.some((open) => open.request_id === requestId)) return;
  const subtype = stringField(request, "subtype") ?? "";
  const { current } = work.state;
  const open: OpenRequest = {
    request_id: requestId,
    kind: requestKind(request),
    subtype,
    seq: seq(work.state.seq + 1),
    opened_at_ms: work.now,
    ...(current !== undefined && { turn_id: current }),
    request,
  };
  tell(work, "request.opened", open, current);
  change(work, { requests: [...work.state.requests, open] });
  const unserved = unservedReason(subtype);
  if (unserved === undefined) return;
  work.stdin.push(failure(requestId, unserved));
  resolveRequest(work, requestId, { outcome: "answered", decision: { error: unserved }, decided_by: "broker" });
}

interface Resolution {
  readonly outcome: RequestOutcome;
  readonly decision?: JsonObject;
  readonly decided_by?: string;
}

/** Settles an open request, once; one that is not open is left alone. */
export function resolveRequest(work: Work, requestId: string, resolution: Resolution): void {
  const open = work.state.requests.find((request) => request.request_id === requestId);
  if (open === undefined) return;
  change(work, { requests: work.state.requests.filter((request) => request !== open) });
  tell(work, "request.resolved", { request_id: requestId, ...resolution }, open.turn_id);
}

/** The agent is gone: what it asked is lost, and clients that know only the CLI's protocol are told in its words. */
export function loseRequests(work: Work): void {
  for (const { request_id } of work.state.requests) {
    speakForAgent(work, { type: "control_cancel_request", request_id });
    resolveRequest(work, request_id, { outcome: "lost" });
  }
}

function onAnswer(work: Work, message: JsonObject, forward: Forward): void {
  const response = isJsonObject(message.response) ? message.response : {};
  const requestId = stringField(response, "request_id");
  const { phase } = work.state;
  if (phase.name === "starting" && requestId === phase.initializeId) return onInitialized(work, response, forward);
  const pending = work.state.pending.find((item) => item.requestId === requestId);
  if (pending === undefined) {
    forward({ restricted: true });
    return;
  }
  forward({ command_id: pending.commandId, ...(answerIsPrivate(pending.subtype) && { restricted: true as const }) });
  change(work, { pending: work.state.pending.filter((item) => item !== pending) });
  const body = isJsonObject(response.response) ? response.response : {};
  if (pending.target !== undefined && body.cancelled === true) withdrawTurn(work, pending.target);
  if (pending.subtype === "interrupt" && Array.isArray(body.cancelled)) {
    for (const turnId of body.cancelled) if (typeof turnId === "string") withdrawTurn(work, turnId);
  }
}

/** The CLI is ready: what waited is written, controls first, since they say how the turns are to run. */
function onInitialized(work: Work, response: JsonObject, forward: Forward): void {
  forward({ restricted: true });
  if (response.subtype !== "success") {
    // The exit that follows says what becomes of the queue.
    work.lifecycle = "stop";
    return;
  }
  const initialized = isJsonObject(response.response) ? response.response : {};
  change(work, {
    initialized,
    version: stringField(initialized, "claude_code_version") ?? work.state.version,
    permissionMode: stringField(initialized, "current_permission_mode") ?? work.state.permissionMode,
    phase: { name: "live", since: work.now },
  });
  answerHeldInitializes(work, initialized);
  work.stdin.push(...work.state.held);
  change(work, { held: [] });
  startNext(work);
}

/** Clients that asked for `initialize` while the CLI started get its one answer under their own request ids. */
function answerHeldInitializes(work: Work, initialized: JsonObject): void {
  for (const pending of work.state.pending.filter((item) => item.subtype === "initialize")) {
    answerFromBroker(work, pending.requestId, pending.commandId, initialized, true);
  }
  change(work, { pending: work.state.pending.filter((item) => item.subtype !== "initialize") });
}

/** A control_request answered without the agent: from the cache, or because there is nothing to ask it. */
export function answerFromBroker(
  work: Work,
  requestId: string,
  commandId: string,
  response: JsonObject,
  restricted: boolean,
): void {
  speakForAgent(work, success(requestId, response), {
    command_id: commandId,
    ...(restricted && { restricted: true as const }),
  });
}
