import type { Principal } from "../../auth/port.ts";
import type { ClientFrame } from "../../protocol/frames.ts";
import { type Seq, sessionId } from "../../protocol/ids.ts";
import { BrokerError, problemBody } from "../../protocol/problems.ts";
import type { Session } from "../../sessions/port.ts";
import { pump, type Sink } from "../../transport/pump.ts";
import type { Link } from "../../transport/websocket.ts";
import { type ApiContext, findSession } from "../context.ts";
import { startOf } from "../cursor.ts";

type Wanted = Omit<Extract<ClientFrame, { type: "subscribe" }>, "type">;

/** The sessions that one socket follows. */
export interface Subscriptions {
  /** Replaces an earlier one for the session. @throws BrokerError not_found, cursor_ahead, rate_limited */
  start(principal: Principal, wanted: Wanted): Promise<void>;
  stop(sessionId: string): void;
}

export function createSubscriptions(context: ApiContext, link: Link): Subscriptions {
  const running = new Map<string, AbortController>();
  link.closing.addEventListener("abort", () => {
    for (const controller of running.values()) controller.abort();
    running.clear();
  });

  function counted(sink: Sink): Sink {
    return {
      ...sink,
      async events(events) {
        await sink.events(events);
        context.metrics.eventsSent("websocket", events.length);
      },
    };
  }

  /** Never throws: whatever ends a subscription is told on the socket. */
  async function follow(
    session: Session,
    options: { after: Seq; previews: boolean; restricted: boolean },
    mine: AbortController,
  ) {
    const sink = link.sink(session.id, mine.signal);
    const { head, state, openRequests } = session.standing();
    const id = sessionId(session.id);
    try {
      // In the sink's own order, so it is there before the first event (contract 5).
      void sink.notice({ type: "subscribed", session_id: id, head, state, open_requests: openRequests });
      const ended = (): boolean => session.standing().finished;
      const end = await pump(session.log, counted(sink), { ...options, ended }, mine.signal);
      if (end !== "aborted") await sink.notice({ type: "ended", session_id: id });
    } catch (error) {
      if (!mine.signal.aborted) {
        if (!(error instanceof BrokerError))
          context.logger.error({ err: error, session_id: id }, "subscription failed");
        link.send({ type: "error", session_id: id, ...problemBody(error) });
      }
    } finally {
      if (running.get(id) === mine) running.delete(id);
    }
  }

  return {
    async start(principal, { session_id, after, previews }) {
      const session = await findSession(context, principal, session_id);
      const { subscriptionsPerSocket } = context.config;
      if (!running.has(session_id) && running.size >= subscriptionsPerSocket) {
        throw new BrokerError(
          "rate_limited",
          `A socket follows at most ${subscriptionsPerSocket} sessions. Open another.`,
        );
      }
      const from = startOf(after ?? 0, session.standing().head);
      running.get(session_id)?.abort();
      const mine = new AbortController();
      if (link.closing.aborted) return;
      running.set(session_id, mine);
      const restricted = context.auth.may(principal, "drive");
      void follow(session, { after: from, previews: previews ?? true, restricted }, mine);
    },
    stop(id) {
      running.get(id)?.abort();
      running.delete(id);
    },
  };
}
