import type { Principal } from "../../auth/port.ts";
import { parseClientFrame } from "../../protocol/frames.schema.ts";
import type { ClientFrame, CommandFrame } from "../../protocol/frames.ts";
import { isJsonObject, stringField } from "../../protocol/json.ts";
import { BrokerError, problemBody } from "../../protocol/problems.ts";
import type { Actor } from "../../sessions/port.ts";
import type { Link } from "../../transport/websocket.ts";
import { type ApiContext, findSession } from "../context.ts";
import { submit } from "../submit.ts";
import type { Inbound } from "./inbox.ts";
import type { Subscriptions } from "./subscriptions.ts";
import { startWatch } from "./watch.ts";

/** Frames that make no sense, less those that do; a socket with so many is not worth serving. */
const STRIKES_LIMIT = 100;

/** What an authenticated socket's frames do. */
export interface Frames {
  /** Answers every failure on the socket; never throws. */
  handle(frame: Inbound): Promise<void>;
}

/** Which command or session a bad frame was about, as far as it says so. */
function addressee(text: string): { id?: string; session_id?: string } {
  try {
    const value: unknown = JSON.parse(text);
    if (!isJsonObject(value)) return {};
    const id = stringField(value, "id");
    const session_id = stringField(value, "session_id");
    return { ...(id !== undefined && { id }), ...(session_id !== undefined && { session_id }) };
  } catch {
    return {};
  }
}

/** Sends why a frame had no effect. Faults of ours are logged, without the frame. */
export function refuseFrame(context: ApiContext, link: Link, error: unknown, text = ""): void {
  if (!(error instanceof BrokerError) || error.code === "internal") {
    context.logger.error({ err: error }, "a frame could not be handled");
  }
  link.send({ type: "error", ...addressee(text), ...problemBody(error) });
}

export function createFrames(
  context: ApiContext,
  link: Link,
  principal: Principal,
  actor: Actor,
  subscriptions: Subscriptions,
): Frames {
  const inFlight = new Set<Promise<void>>();
  let strikes = 0;
  let watching = false;

  /** Starts the command and does not wait for its ack, so that a socket is not bound to one commit at a time. */
  async function command(frame: CommandFrame, { text, bytes }: Inbound): Promise<void> {
    const session = await findSession(context, principal, frame.session_id);
    const { type: _type, session_id, ...body } = frame;
    const answer = submit(context, {
      session,
      principal,
      actor: { ...actor, capabilities: subscriptions.capabilities(session.id) },
      body,
      bytes,
    }).then(
      (accepted) => link.send({ type: "ack", id: frame.id, ...accepted }),
      (error: unknown) => refuseFrame(context, link, error, text),
    );
    const tracked = answer.finally(() => inFlight.delete(tracked));
    inFlight.add(tracked);
    if (inFlight.size >= context.config.commandsInFlight) await Promise.race(inFlight);
  }

  async function dispatch(frame: ClientFrame, inbound: Inbound): Promise<void> {
    switch (frame.type) {
      case "auth":
        throw new BrokerError("bad_request", "This socket is authenticated already. Open another one.");
      case "ping":
        return link.send({ type: "pong" });
      case "subscribe":
        return subscriptions.start(principal, frame);
      case "unsubscribe":
        return subscriptions.stop(frame.session_id);
      case "watch":
        if (!watching) startWatch(context, link, principal);
        watching = true;
        return;
      case "command":
        return command(frame, inbound);
    }
  }

  function strike(error: unknown): void {
    strikes += error instanceof BrokerError && error.code === "bad_request" ? 1 : 0;
    if (strikes >= STRIKES_LIMIT)
      link.close(new BrokerError("bad_request", "Too many malformed frames. Correct the client."));
  }

  return {
    async handle(inbound) {
      try {
        const frame = parseClientFrame(inbound.text);
        const { inboundLimitBytes } = context.config;
        const isQuery = frame.type === "command" && frame.event_type === "query";
        if (!isQuery && inbound.bytes > inboundLimitBytes) {
          throw new BrokerError("too_large", `Only a query may be larger than ${inboundLimitBytes} bytes. Send less.`);
        }
        strikes = Math.max(0, strikes - 1);
        await dispatch(frame, inbound);
      } catch (error) {
        refuseFrame(context, link, error, inbound.text);
        strike(error);
      }
    },
  };
}
