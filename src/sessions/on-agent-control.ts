import { isJsonObject, type JsonObject, stringField } from "../protocol/json.ts";
import { answerIsPrivate, failure, success } from "./controls.ts";
import { openRequest, resolveRequest } from "./requests.ts";
import { startNext, withdrawTurn } from "./turns.ts";
import { change, type Draft, speakForAgent, type Work } from "./work.ts";

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
  change(work, { held: [], pending: work.state.pending.map((item) => ({ ...item, written: true })) });
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

/** The CLI did not answer in time: whoever asked is told so; an answer that comes later is shown as an ordinary line. */
export function timeOutControl(work: Work, requestId: string): void {
  const pending = work.state.pending.find((item) => item.requestId === requestId);
  if (pending === undefined) return;
  change(work, { pending: work.state.pending.filter((item) => item !== pending) });
  speakForAgent(work, failure(requestId, "timed_out: the agent did not answer in time"), {
    command_id: pending.commandId,
  });
}
