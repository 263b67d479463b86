import type { Principal } from "../auth/port.ts";
import { parseCommand } from "../protocol/commands.schema.ts";
import type { Accepted, Command } from "../protocol/commands.ts";
import { BrokerError } from "../protocol/problems.ts";
import type { Session } from "../sessions/port.ts";
import type { ApiContext } from "./context.ts";

/** A command as some transport brought it. */
export interface Submission {
  readonly session: Session;
  readonly principal: Principal;
  /** The command frame without its `type` and `session_id`. */
  readonly body: unknown;
  /** Its size on the wire. */
  readonly bytes: number;
}

/** Parses and authorises a command: the same for every transport. @throws BrokerError bad_request, too_large, forbidden */
export function readCommand(context: ApiContext, { principal, body, bytes }: Omit<Submission, "session">): Command {
  const command = parseCommand(body);
  const { inboundLimitBytes } = context.config;
  if (command.event_type !== "query" && bytes > inboundLimitBytes) {
    throw new BrokerError("too_large", `Only a query may be larger than ${inboundLimitBytes} bytes. Send less.`);
  }
  context.auth.allow(principal, context.auth.actionOf(command));
  return command;
}

/** Hands a command to its session. @throws BrokerError */
export async function submit(context: ApiContext, submission: Submission): Promise<Accepted> {
  const { session, principal } = submission;
  let eventType = "invalid";
  try {
    const command = readCommand(context, submission);
    eventType = command.event_type;
    const accepted = await session.command(command, { id: principal.id });
    context.metrics.command(eventType, accepted.duplicate ? "duplicate" : "accepted");
    return accepted;
  } catch (error) {
    context.metrics.command(eventType, "refused");
    throw error;
  }
}
