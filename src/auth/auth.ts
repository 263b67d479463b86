import { BrokerError } from "../protocol/problems.ts";
import type { Store } from "../store/port.ts";
import { createAnswerTickets } from "./answer-tickets.ts";
import { type AuditActor, type AuditEntry, actorOf, auditWrite, SERVER_ACTOR } from "./audit.ts";
import { listAudit } from "./audit-list.ts";
import { createCookies } from "./cookies.ts";
import { createFailures, FAILURE_LIMITS, type FailureLimits } from "./failures.ts";
import { checkedKey, checkRevocable, managedTenant, ticketPrincipal } from "./grants.ts";
import { hasKeyForm, keyIdOf } from "./key-format.ts";
import { createKeys, isFullOperator, isValid } from "./keys.ts";
import type { Auth, KeyView, Principal, Ticket } from "./port.ts";
import { actionOfCreation, actionsOf, may } from "./roles.ts";
import { createTickets } from "./tickets.ts";

const TICKET_LIFE_MS = 30_000;
const LONGEST_TICKET_LIFE_MS = 15 * 60_000;

export interface AuthOptions {
  readonly store: Store;
  /** PATCHBAY_ADMIN_KEY; undefined = a first key is made when there is no valid operator's. */
  readonly adminKey?: string;
  readonly failureLimits?: FailureLimits;
  /** Milliseconds since the epoch. */
  readonly now?: () => number;
}

const principalOf = (key: KeyView): Principal => ({
  id: key.id,
  tenant: key.tenant,
  roles: key.roles,
  ...(key.session_id !== null && { sessionId: key.session_id }),
  ...(key.expires_at_ms !== null && { expiresAtMs: key.expires_at_ms }),
});

function ticketLife(ttlMs: number): number {
  if (ttlMs > 0 && ttlMs <= LONGEST_TICKET_LIFE_MS) return ttlMs;
  throw new BrokerError("bad_request", "ttl_s: must be above 0 and at most 900. Correct it and send again.", {
    details: { field: "ttl_s" },
  });
}

/**
 * Opens authentication over a store. `createdKey` is the first operator key when it was made just now: show it once.
 * @throws BrokerError config_invalid
 */
export async function createAuth(options: AuthOptions): Promise<Auth & { readonly createdKey?: string }> {
  const now = options.now ?? Date.now;
  const keys = createKeys(options.store, now);
  const tickets = createTickets(now);
  const cookies = createCookies(now);
  const failures = createFailures(options.failureLimits ?? FAILURE_LIMITS, now);
  const listeners = new Set<(principalId: string) => void>();
  const createdKey = await keys.ensureFirst(options.adminKey);
  const record = (entry: AuditEntry): Promise<void> => options.store.write([auditWrite(entry, now())]);

  /** Told to nobody before it is on record. */
  async function giveTicket(principal: Principal, lifeMs: number, subtype: string, actor: AuditActor): Promise<Ticket> {
    const ticket = tickets.create(principal, lifeMs);
    const { tenant, roles, sessionId } = principal;
    await record({
      kind: "ticket",
      tenant,
      actor,
      subtype,
      ...(sessionId !== undefined && { session_id: sessionId }),
      decision: { key_id: principal.id, roles, expires_at_ms: ticket.expiresAtMs },
      outcome: "created",
    });
    return ticket;
  }

  return {
    ...(createdKey !== undefined && { createdKey }),
    async withKey(token, address) {
      // Tokens of a foreign form share one counter: each guess would have an id of its own.
      const counted = hasKeyForm(token) ? keyIdOf(token) : "other";
      failures.check(address, counted);
      try {
        return principalOf(await keys.find(token));
      } catch (error) {
        if (error instanceof BrokerError && error.code !== "internal") throw failures.failed(address, counted, error);
        throw error;
      }
    },
    async withTicket(ticket, use, address) {
      try {
        return tickets.redeem(ticket, use);
      } catch (error) {
        throw error instanceof BrokerError ? failures.failed(address, "ticket", error) : error;
      }
    },
    withCookie: async (cookie) => cookies.find(cookie),
    async createTicket(maker, wanted, origin) {
      const life = ticketLife(wanted.ttlMs ?? TICKET_LIFE_MS);
      return giveTicket(ticketPrincipal(maker, wanted), life, "create", actorOf(maker, origin));
    },
    async createConsoleTicket() {
      const key = (await keys.list(undefined)).find((one) => isFullOperator(one) && isValid(one, now()));
      if (key === undefined)
        throw new BrokerError("not_found", "There is no valid operator key. Start the server again.");
      const principal = ticketPrincipal(principalOf(key), {});
      return giveTicket(principal, LONGEST_TICKET_LIFE_MS, "console", SERVER_ACTOR);
    },
    createCookie: async (principal) => cookies.create(principal),
    createKey: async (maker, wanted, origin) => keys.create(checkedKey(maker, wanted), actorOf(maker, origin)),
    listKeys: async (manager) => keys.list(managedTenant(manager)),
    async revokeKey(manager, id, origin) {
      checkRevocable(manager, await keys.read(id));
      const key = await keys.revoke(id, actorOf(manager, origin));
      tickets.revoke(id);
      cookies.revoke(id);
      for (const listener of listeners) listener(id);
      return key;
    },
    onRevoked(listener) {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
    may,
    allow(principal, action) {
      if (may(principal, action)) return;
      throw new BrokerError("forbidden", `Your roles (${principal.roles.join(", ")}) do not allow to ${action}.`, {
        details: { action },
      });
    },
    actionsOf,
    actionOfCreation,
    record,
    listAudit: (filter) => listAudit(options.store, filter),
    answers: createAnswerTickets(now, failures, record),
  };
}
