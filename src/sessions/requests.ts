import type { ControlResponse } from "../protocol/commands.ts";
import type { OpenRequest, RequestOutcome } from "../protocol/events.ts";
import { seq } from "../protocol/ids.ts";
import { type JsonObject, stringField } from "../protocol/json.ts";
import type { Verdict } from "../protocol/policy.ts";
import { BrokerError } from "../protocol/problems.ts";
import { capabilityFor } from "../protocol/registration.ts";
import { requestKind } from "../protocol/requests.ts";
import { checkAnswer } from "./answers.ts";
import { inputText, needsAnother, refuseByPolicy } from "./approvals.ts";
import { failure, unservedReason } from "./controls.ts";
import { ownerOf } from "./owners.ts";
import type { Actor } from "./port.ts";
import { change, speakForAgent, tell, type Work } from "./work.ts";

/** The agent asks: policy is heard first, then people (PROTOCOL 6.5). */
export function openRequest(work: Work, requestId: string, request: JsonObject): void {
  // The CLI repeats a request only after a restart of its own making; the first one stands.
  if (work.state.requests.some((open) => open.request_id === requestId)) return;
  const kind = requestKind(request);
  const subtype = stringField(request, "subtype") ?? "";
  const served = kind === "hook" || kind === "mcp" ? ownerOf(work.state.owners, request) : undefined;
  const unserved = served === undefined || served.owner.gone ? unservedReason(subtype) : undefined;
  const { current, permissionMode, version } = work.state;
  const said = unserved === undefined ? work.decide({ kind, request, mode: permissionMode, version }) : undefined;
  // A client's own wiring is asked unless a rule denies it; nobody can answer in its place.
  const verdict = served === undefined || said?.effect === "deny" ? said : undefined;
  const open: OpenRequest = {
    request_id: requestId,
    kind,
    subtype,
    seq: seq(work.state.seq + 1),
    opened_at_ms: work.now,
    ...(current !== undefined && { turn_id: current }),
    ...(served !== undefined && { owner: served.owner.id }),
    ...(served?.callback_id !== undefined && { callback_id: served.callback_id }),
    ...(verdict !== undefined && conditions(verdict, work.now)),
    request,
  };
  tell(work, "request.opened", open, current);
  change(work, { requests: [...work.state.requests, open] });
  if (unserved !== undefined) {
    work.stdin.push(failure(requestId, unserved));
    resolveRequest(work, requestId, { outcome: "answered", decision: { error: unserved }, decided_by: "broker" });
  } else if (verdict !== undefined) decideByPolicy(work, open, verdict);
}

/** What people are told of the conditions under which they are asked. */
function conditions(verdict: Verdict, now: number): Partial<OpenRequest> {
  if (verdict.effect !== "ask") return {};
  return {
    ...(verdict.grants !== undefined && { grants: verdict.grants }),
    ...(verdict.approvers === 2 && { approvals_needed: 2, approvals: [] }),
    // Only a denial can expire into a decision; silence is never consent.
    ...(verdict.expire?.effect === "deny" && { expires_at_ms: now + verdict.expire.after_ms }),
  };
}

function decideByPolicy(work: Work, open: OpenRequest, verdict: Verdict): void {
  if (verdict.effect === "ask") return;
  const { decided_by } = verdict;
  const response: AnswerBody =
    verdict.effect === "allow"
      ? { subtype: "success", response: { behavior: "allow", updatedInput: open.request.input } }
      : denial(open, verdict.message ?? "A policy of this server denies this.");
  settle(work, open, response, { outcome: "answered", decided_by }, { id: decided_by });
}

type AnswerBody =
  | { readonly subtype: "success"; readonly response: JsonObject }
  | { readonly subtype: "error"; readonly error: string };

/** No, in the words that the CLI takes for this kind (spec/claude-protocol 3.2). */
function denial({ kind }: OpenRequest, message: string): AnswerBody {
  switch (kind) {
    case "permission":
    case "question":
    case "plan":
      return { subtype: "success", response: { behavior: "deny", message } };
    case "elicitation":
      return { subtype: "success", response: { action: "decline" } };
    case "hook":
    case "mcp":
    case "dialog":
    case "other":
      return { subtype: "error", error: message };
  }
}

/** Writes a decision that the broker makes itself, and says who made it. */
function settle(
  work: Work,
  open: OpenRequest,
  body: AnswerBody,
  by: Pick<Resolution, "outcome" | "decided_by">,
  actor: Actor,
): void {
  const { line, decision } = checkAnswer(open, {
    type: "control_response",
    response: { ...body, request_id: open.request_id },
  });
  note(work, open, "policy", actor, decision, by.outcome);
  work.stdin.push(line);
  resolveRequest(work, open.request_id, { ...by, decision });
}

/** A request that nobody answered in the time its policy gives is denied; one that is settled meanwhile is left alone. */
export function expireRequest(work: Work, requestId: string): void {
  const open = work.state.requests.find((request) => request.request_id === requestId);
  if (open?.expires_at_ms === undefined || open.expires_at_ms > work.now) return;
  const denied = denial(open, "Nobody answered in the time that this server's policy gives.");
  settle(work, open, denied, { outcome: "expired", decided_by: "policy:expiry" }, { id: "policy:expiry" });
}

/**
 * An answer of a client: the first valid one settles the request, or, where two must approve, the second of two people who approve the
 * same. Returns the line for the agent when the request is settled. @throws BrokerError request_unknown, invalid_answer, request_already_answered
 */
export function answerRequest(
  work: Work,
  answer: ControlResponse,
  actor: Actor,
): { open: OpenRequest; line: JsonObject; decision: JsonObject; settles: boolean } {
  const { request_id } = answer.response;
  const open = work.state.requests.find((request) => request.request_id === request_id);
  if (open === undefined) {
    const message = "This session has no open request with that id; read GET …/requests.";
    throw new BrokerError("request_unknown", message, { details: { request_id } });
  }
  refuseIncapable(work, open, actor);
  const { line, decision } = checkAnswer(open, answer, actor);
  refuseByPolicy(work, open, line, decision);
  const settles = !needsAnother(open, line, decision, actor);
  // The record says what was really approved where that is not what was shown.
  const changed = decision.behavior === "allow" && inputText(line) !== JSON.stringify(open.request.input ?? {});
  const recorded = changed ? { ...decision, updatedInput: JSON.parse(inputText(line)) } : decision;
  note(work, open, "answer", actor, recorded, settles ? "answered" : "approved");
  return { open, line, decision, settles };
}

/** Only a capable client's answer counts, an error no more than a decision; of a hook or an in-client server, only its owner's. */
function refuseIncapable(work: Work, open: OpenRequest, actor: Actor): void {
  const details = { request_id: open.request_id, kind: open.kind };
  if (open.owner !== undefined) {
    const owner = work.state.owners.find((item) => item.id === open.owner);
    if (owner?.connectionId !== undefined && owner.connectionId === actor.connection_id) return;
    throw new BrokerError("forbidden", "Only the client that registered this hook or server answers it.", { details });
  }
  const needed = capabilityFor(open.kind);
  if (needed === undefined || actor.capabilities === undefined || actor.capabilities.includes(needed)) return;
  throw new BrokerError(
    "forbidden",
    `This connection did not say that it can answer ${needed}; subscribe with that capability.`,
    { details },
  );
}

/** The first of two approvals: told to everybody, settles nothing. */
export function approveRequest(work: Work, open: OpenRequest, line: JsonObject, actor: Actor): void {
  const approval = { by: actor.id, at_ms: work.now, input: inputText(line) };
  const approved = { ...open, approvals: [...(open.approvals ?? []), approval] };
  change(work, { requests: work.state.requests.map((request) => (request === open ? approved : request)) });
  tell(
    work,
    "request.approved",
    { request_id: open.request_id, by: actor.id, approvals_needed: open.approvals_needed ?? 1 },
    open.turn_id,
  );
}

function note(
  work: Work,
  open: OpenRequest,
  kind: "answer" | "policy",
  actor: Actor,
  decision: JsonObject,
  outcome: string,
): void {
  work.audits.push({
    kind,
    actor,
    request_id: open.request_id,
    subtype: open.subtype,
    ...(typeof open.request.tool_name === "string" && { tool_name: open.request.tool_name }),
    shown: JSON.stringify(open.request.input ?? open.request),
    decision,
    outcome,
    seq: work.state.seq + 1,
  });
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

/**
 * These turns were interrupted: nobody waits for what they asked. The CLI takes back its permissions itself; 2.1.197 forgets elicitations.
 * A subagent in the background may outlive the turn, so what it asks stays.
 */
export function cancelRequests(work: Work, turnIds: readonly string[]): void {
  for (const { request_id, turn_id, request } of work.state.requests) {
    if (turn_id === undefined || !turnIds.includes(turn_id) || request.agent_id !== undefined) continue;
    speakForAgent(work, { type: "control_cancel_request", request_id });
    resolveRequest(work, request_id, { outcome: "cancelled" });
  }
}

/** The agent is gone: what it asked is lost, and clients that know only the CLI's protocol are told in its words. */
export function loseRequests(work: Work): void {
  for (const { request_id } of work.state.requests) {
    speakForAgent(work, { type: "control_cancel_request", request_id });
    resolveRequest(work, request_id, { outcome: "lost" });
  }
}
