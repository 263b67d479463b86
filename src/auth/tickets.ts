import { BrokerError } from "../protocol/problems.ts";
import { hashOf, newSecret } from "./key-format.ts";
import type { Principal, Ticket, TicketUse } from "./port.ts";

/** How long the stream of a ticket may come back with it, from its first use. */
const STREAM_REUSE_MS = 10 * 60_000;
/** Tickets one key may have open, so that no client fills memory. */
const OPEN_TICKETS_LIMIT = 1_000;

type Phase =
  | { readonly name: "unused"; readonly untilMs: number }
  | { readonly name: "streaming"; readonly untilMs: number; readonly sessionId: string };

interface Entry {
  readonly principal: Principal;
  readonly phase: Phase;
}

/** Single-use stand-ins for a key where a token would travel in a URL. In memory: they live for seconds. */
export interface Tickets {
  /** @throws BrokerError rate_limited */
  create(principal: Principal, ttlMs: number): Ticket;
  /** @throws BrokerError unauthenticated */
  redeem(ticket: string, use: TicketUse): Principal;
  revoke(principalId: string): void;
}

const refused = (): BrokerError =>
  new BrokerError("unauthenticated", "The ticket is unknown, used or over. Ask for a new one.");

export function createTickets(now: () => number): Tickets {
  // Looked up by hash: comparing hashes of random values tells nothing by its timing.
  const entries = new Map<string, Entry>();
  const nameOf = (ticket: string): string => hashOf(ticket).toString("hex");
  const over = (entry: Entry): boolean => {
    const endMs = Math.min(entry.phase.untilMs, entry.principal.expiresAtMs ?? Number.POSITIVE_INFINITY);
    return endMs <= now();
  };
  function sweep(): void {
    for (const [name, entry] of entries) if (over(entry)) entries.delete(name);
  }
  return {
    create(principal, ttlMs) {
      sweep();
      const open = [...entries.values()].filter((entry) => entry.principal.id === principal.id).length;
      if (open >= OPEN_TICKETS_LIMIT) {
        throw new BrokerError(
          "rate_limited",
          "This key has too many open tickets. Use them, or wait until they are over.",
        );
      }
      const ticket = newSecret();
      const expiresAtMs = Math.min(now() + ttlMs, principal.expiresAtMs ?? Number.POSITIVE_INFINITY);
      entries.set(nameOf(ticket), { principal, phase: { name: "unused", untilMs: expiresAtMs } });
      return { ticket, expiresAtMs };
    },
    redeem(ticket, use) {
      const name = nameOf(ticket);
      const entry = entries.get(name);
      if (entry === undefined || over(entry)) throw refused();
      const { principal, phase } = entry;
      if (use.for !== "stream") {
        if (phase.name === "streaming") throw refused();
        entries.delete(name);
        return principal;
      }
      if (phase.name === "unused") {
        const untilMs = now() + STREAM_REUSE_MS;
        entries.set(name, { principal, phase: { name: "streaming", untilMs, sessionId: use.sessionId } });
        return principal;
      }
      if (phase.sessionId !== use.sessionId) throw refused();
      return principal;
    },
    revoke(principalId) {
      for (const [name, entry] of entries) if (entry.principal.id === principalId) entries.delete(name);
    },
  };
}
