import { BrokerError } from "../protocol/problems.ts";
import type { AuditEntry } from "./audit.ts";
import type { Failures } from "./failures.ts";
import { hashOf, newSecret } from "./key-format.ts";
import type { Principal, Ticket } from "./port.ts";

/** Open ones of one principal; beyond, its oldest ends, so that nobody fills memory and the newest question can always be answered. */
const OPEN_LIMIT = 1_000;

/** The one thing that an answer ticket is good for. */
export interface AnswerRight {
  /** Narrowed to the session, an approver and no more. */
  readonly principal: Principal & { readonly sessionId: string };
  readonly requestId: string;
  /** Names the command, the same at each try; it tells nothing of the ticket. */
  readonly commandId: string;
}

export interface NewAnswerTicket {
  /** Who answers, such as `webhook:<id>`. */
  readonly id: string;
  readonly tenant: string;
  readonly sessionId: string;
  readonly requestId: string;
  readonly lifeMs: number;
}

/**
 * Tickets that answer one request once, for a link that goes to a person. They are kept apart from the others: none of these opens a
 * socket, and no other one answers by a link. In memory, hashed: a restart ends them.
 */
export interface AnswerTickets {
  /** On record before it is told. */
  create(wanted: NewAnswerTicket): Promise<Ticket>;
  /**
   * Lends the right to `answer` and takes the ticket away once that has succeeded; a refused answer leaves it, since the request may still
   * be open. @throws BrokerError unauthenticated (unknown, used, over, or in use just now), rate_limited, and what `answer` throws
   */
  use<T>(ticket: string, address: string, answer: (right: AnswerRight) => Promise<T>): Promise<T>;
  /** Ends all of one principal. */
  revoke(principalId: string): void;
}

interface Entry {
  readonly right: AnswerRight;
  readonly untilMs: number;
}

export function createAnswerTickets(
  now: () => number,
  failures: Failures,
  record: (entry: AuditEntry) => Promise<void>,
): AnswerTickets {
  // In the order of making. Looked up by hash: comparing hashes of random values tells nothing by its timing.
  const entries = new Map<string, Entry>();
  /** Being answered just now. */
  const lent = new Set<string>();
  const nameOf = (ticket: string): string => hashOf(ticket).toString("hex");

  function makeRoom(principalId: string): void {
    for (const [name, { untilMs }] of entries) if (untilMs <= now()) entries.delete(name);
    const own = [...entries].filter(([, { right }]) => right.principal.id === principalId);
    for (const [name] of own.slice(0, Math.max(0, own.length - OPEN_LIMIT + 1))) entries.delete(name);
  }

  return {
    async create({ id, tenant, sessionId, requestId, lifeMs }) {
      makeRoom(id);
      const ticket = newSecret();
      const name = nameOf(ticket);
      const untilMs = now() + lifeMs;
      const principal = { id, tenant, roles: ["approver"], sessionId, expiresAtMs: untilMs, ticket: true } as const;
      await record({
        kind: "ticket",
        tenant,
        session_id: sessionId,
        actor: { id },
        subtype: "answer",
        request_id: requestId,
        decision: { roles: principal.roles, expires_at_ms: untilMs },
        outcome: "created",
      });
      // Not the hash itself: whoever reads the log must not be able to recognise a ticket by it.
      const commandId = `answer-${nameOf(`command ${ticket}`).slice(0, 32)}`;
      entries.set(name, { right: { principal, requestId, commandId }, untilMs });
      return { ticket, expiresAtMs: untilMs };
    },
    async use(ticket, address, answer) {
      const name = nameOf(ticket);
      const entry = entries.get(name);
      if (entry === undefined || entry.untilMs <= now() || lent.has(name)) {
        const problem = "The link is unknown, used or over. Answer where you have a key, or wait for the next one.";
        throw failures.failed(address, "answer", new BrokerError("unauthenticated", problem));
      }
      // Of two that come at once only one is heard.
      lent.add(name);
      try {
        const answered = await answer(entry.right);
        entries.delete(name);
        return answered;
      } finally {
        lent.delete(name);
      }
    },
    revoke(principalId) {
      for (const [name, { right }] of entries) if (right.principal.id === principalId) entries.delete(name);
    },
  };
}
