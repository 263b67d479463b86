import type { Principal } from "../auth/port.ts";
import { parseCommand } from "../protocol/commands.schema.ts";
import type { Accepted, Command } from "../protocol/commands.ts";
import type { RequestKind } from "../protocol/events.ts";
import { BrokerError } from "../protocol/problems.ts";
import type { Actor, Session } from "../sessions/port.ts";
import type { ApiContext } from "./context.ts";

/** A command as some transport brought it. */
export interface Submission {
  readonly session: Session;
  readonly principal: Principal;
  /** The same, with where it came from. */
  readonly actor: Actor;
  /** The command frame without its `type` and `session_id`. */
  readonly body: unknown;
  /** Its size on the wire. */
  readonly bytes: number;
}

/** The kind of the request that a command answers, where it is open. */
function answeredKind(session: Session, command: Command): RequestKind | undefined {
  if (command.event_type !== "control_response") return undefined;
  const { request_id } = command.payload.response;
  return session.view().open_requests.find((open) => open.request_id === request_id)?.kind;
}

/** Parses and authorises a command: the same for every transport. @throws BrokerError bad_request, too_large, forbidden */
export function readCommand(
  context: ApiContext,
  { session, principal, body, bytes }: Omit<Submission, "actor">,
): Command {
  const command = parseCommand(body);
  const { inboundLimitBytes } = context.config;
  if (command.event_type !== "query" && bytes > inboundLimitBytes) {
    throw new BrokerError("too_large", `Only a query may be larger than ${inboundLimitBytes} bytes. Send less.`);
  }
  const kind = answeredKind(session, command);
  for (const action of context.auth.actionsOf(command, kind)) context.auth.allow(principal, action);
  return command;
}

/** Hands a command to its session. @throws BrokerError */
export async function submit(context: ApiContext, submission: Submission): Promise<Accepted> {
  const { session, actor } = submission;
  let eventType = "invalid";
  try {
    const command = readCommand(context, submission);
    eventType = command.event_type;
    const accepted = await session.command(command, actor);
    context.metrics.command(eventType, accepted.duplicate ? "duplicate" : "accepted");
    return accepted;
  } catch (error) {
    context.metrics.command(eventType, "refused");
    throw error;
  }
}
