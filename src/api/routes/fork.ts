import { parseNewFork } from "../../protocol/sessions.schema.ts";
import type { Session } from "../../sessions/port.ts";
import { actorOf } from "../actor.ts";
import { type Call, type Route, refuseNarrowed, sessionOf } from "../context.ts";
import { idempotencyOf } from "../idempotency.ts";

/**
 * A policy of the session's own goes over to what comes of it, and a fork has its permission mode too: what somebody widened for one
 * folder holds in another only if an admin says so. @throws BrokerError forbidden
 */
export function allowFolder(
  { context, principal }: Call,
  source: Session,
  cwd: string | undefined,
  mode: string,
): void {
  const isWide = context.policies.forSession(source.id) !== undefined || (mode !== "default" && mode !== "plan");
  if (cwd !== undefined && isWide) context.auth.allow(principal, "administer");
}

/** The new session belongs to the tenant of the one that it comes from, whoever asks. */
async function fork(call: Call): Promise<unknown> {
  const { context, principal, request, reply } = call;
  const source = await sessionOf(call);
  refuseNarrowed(principal);
  const { id, tenant } = source;
  const input = parseNewFork(request.body);
  allowFolder(call, source, input.cwd, source.view().agent.permission_mode ?? "default");
  const actor = actorOf(call);
  const view = await context.sessions.fork(id, input, { tenant, actor, ...idempotencyOf(request) });
  await context.auth.record({
    kind: "session",
    tenant,
    session_id: id,
    actor,
    subtype: "fork",
    decision: { session_id: view.id, ...(input.at !== undefined && { at: input.at }) },
    outcome: "accepted",
  });
  return reply.code(201).header("location", `/v1/sessions/${view.id}`).send(view);
}

export const FORK_ROUTES: readonly Route[] = [
  { method: "POST", url: "/v1/sessions/:id/fork", access: "drive", handle: fork },
];
