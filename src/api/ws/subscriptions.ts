import type { Principal } from "../../auth/port.ts";
import type { ClientFrame } from "../../protocol/frames.ts";
import { type Seq, sessionId } from "../../protocol/ids.ts";
import { BrokerError, problemBody } from "../../protocol/problems.ts";
import { type Capability, DEFAULT_CAPABILITIES, type Registration } from "../../protocol/registration.ts";
import type { Actor, Session } from "../../sessions/port.ts";
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
  /** What this socket said that it can answer for a session (contract 5). */
  capabilities(sessionId: string): readonly Capability[];
}

interface Running {
  readonly controller: AbortController;
  readonly capabilities: readonly Capability[];
  /** Tells the session that what was registered here is served no more. */
  readonly leave: () => void;
}

export function createSubscriptions(
  context: ApiContext,
  link: Link,
  actorFor: (principal: Principal) => Actor & { readonly connection_id: string },
): Subscriptions {
  const running = new Map<string, Running>();
  const end = (id: string): void => {
    running.get(id)?.controller.abort();
    running.get(id)?.leave();
    running.delete(id);
  };
  link.closing.addEventListener("abort", () => {
    for (const id of [...running.keys()]) end(id);
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
    owner: string | undefined,
  ) {
    const sink = link.sink(session.id, mine.signal);
    const { head, state, openRequests } = session.standing();
    const id = sessionId(session.id);
    try {
      // In the sink's own order, so it is there before the first event (contract 5).
      void sink.notice({
        type: "subscribed",
        session_id: id,
        head,
        state,
        open_requests: openRequests,
        ...(owner !== undefined && { owner }),
      });
      const ended = (): boolean => session.standing().finished;
      const outcome = await pump(session.log, counted(sink), { ...options, ended }, mine.signal);
      if (outcome !== "aborted") await sink.notice({ type: "ended", session_id: id });
    } catch (error) {
      if (!mine.signal.aborted) {
        if (!(error instanceof BrokerError))
          context.logger.error({ err: error, session_id: id }, "subscription failed");
        link.send({ type: "error", session_id: id, ...problemBody(error) });
      }
    } finally {
      if (running.get(id)?.controller === mine) end(id);
    }
  }

  /** Hooks answer and tools act for the agent: whoever serves them must be allowed to do both. */
  async function serve(
    session: Session,
    principal: Principal,
    register: Registration,
  ): Promise<{ owner: string; leave: () => void }> {
    context.auth.allow(principal, "answer");
    context.auth.allow(principal, "drive");
    const actor = actorFor(principal);
    // The older registration of this socket ends first: the new one must not be taken away with it.
    end(session.id);
    const owner = await session.register(actor, register);
    return { owner, leave: () => session.unregister(actor.connection_id) };
  }

  return {
    async start(principal, { session_id, after, previews, capabilities, register }) {
      const session = await findSession(context, principal, session_id);
      const { subscriptionsPerSocket } = context.config;
      if (!running.has(session_id) && running.size >= subscriptionsPerSocket) {
        throw new BrokerError(
          "rate_limited",
          `A socket follows at most ${subscriptionsPerSocket} sessions. Open another.`,
        );
      }
      const from = startOf(after ?? 0, session.standing().head);
      const served = register === undefined ? undefined : await serve(session, principal, register);
      const leave = served?.leave ?? (() => {});
      end(session_id);
      const mine = new AbortController();
      if (link.closing.aborted) return leave();
      running.set(session_id, { controller: mine, capabilities: capabilities ?? DEFAULT_CAPABILITIES, leave });
      const restricted = context.auth.may(principal, "drive");
      void follow(session, { after: from, previews: previews ?? true, restricted }, mine, served?.owner);
    },
    stop: end,
    capabilities: (id) => running.get(id)?.capabilities ?? DEFAULT_CAPABILITIES,
  };
}
