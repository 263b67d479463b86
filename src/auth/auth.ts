import { BrokerError } from "../protocol/problems.ts";
import type { Store } from "../store/port.ts";
import { createCookies } from "./cookies.ts";
import { createFailures, FAILURE_LIMITS, type FailureLimits } from "./failures.ts";
import { hasKeyForm, keyIdOf } from "./key-format.ts";
import { createKeys, isValid } from "./keys.ts";
import type { Auth, KeyView, NewTicket, Principal } from "./port.ts";
import { actionOf, grantableRoles, may, withinRoles } from "./roles.ts";
import { createTickets } from "./tickets.ts";

const TICKET_LIFE_MS = 30_000;
const LONGEST_TICKET_LIFE_MS = 15 * 60_000;
const TENANT = /^[a-z0-9][a-z0-9-]{0,62}$/;

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
  ...(key.expires_at_ms !== null && { expiresAtMs: key.expires_at_ms }),
});

/** What a ticket stands for. @throws BrokerError forbidden, not_available */
function narrowed(maker: Principal, { sessionId, roles }: NewTicket): Principal {
  const wanted = roles === undefined ? maker.roles : grantableRoles(roles);
  if (!withinRoles(wanted, maker.roles)) {
    throw new BrokerError("forbidden", "A ticket never exceeds its maker. Ask for fewer roles.");
  }
  if (maker.sessionId !== undefined && sessionId !== undefined && sessionId !== maker.sessionId) {
    throw new BrokerError("not_found", "There is no session with this id.");
  }
  const session = sessionId ?? maker.sessionId;
  return { ...maker, roles: wanted, ...(session !== undefined && { sessionId: session }) };
}

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
    createTicket: async (maker, wanted) =>
      tickets.create(narrowed(maker, wanted), ticketLife(wanted.ttlMs ?? TICKET_LIFE_MS)),
    async createConsoleTicket() {
      const key = (await keys.list()).find((one) => one.roles.includes("operator") && isValid(one, now()));
      if (key === undefined)
        throw new BrokerError("not_found", "There is no valid operator key. Start the server again.");
      return tickets.create(principalOf(key), LONGEST_TICKET_LIFE_MS);
    },
    createCookie: async (principal) => cookies.create(principal),
    async createKey(wanted) {
      if (!TENANT.test(wanted.tenant)) {
        throw new BrokerError("bad_request", "tenant: must be lower-case letters, digits and dashes.", {
          details: { field: "tenant" },
        });
      }
      return keys.create({ ...wanted, roles: grantableRoles(wanted.roles) });
    },
    listKeys: keys.list,
    async revokeKey(id) {
      const key = await keys.revoke(id);
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
    actionOf,
  };
}
