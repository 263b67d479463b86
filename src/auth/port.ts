import type { Command } from "../protocol/commands.ts";
import type { Action, Role } from "../protocol/roles.ts";

/** Who asks: an authenticated key, ticket or console cookie. Tickets and cookies act as the key that made them, never above it. */
export interface Principal {
  /** The key's id: it goes into events as their source, and scopes command ids, so a client may come back with a new ticket. */
  readonly id: string;
  readonly tenant: string;
  readonly roles: readonly Role[];
  /** Only this session exists for it. */
  readonly sessionId?: string;
  /** When a live connection of it has to end. */
  readonly expiresAtMs?: number;
}

/** A key as its administrators see it; the secret is not kept. */
export interface KeyView {
  readonly id: string;
  readonly tenant: string;
  readonly name: string;
  readonly roles: readonly Role[];
  readonly created_at_ms: number;
  readonly expires_at_ms: number | null;
  readonly revoked_at_ms: number | null;
  /** To the minute. */
  readonly last_used_at_ms: number | null;
}

export interface NewKey {
  readonly tenant: string;
  readonly name: string;
  /** Names as they were asked for; checked when the key is made. */
  readonly roles: readonly string[];
  readonly expiresAtMs?: number;
}

export interface NewTicket {
  readonly sessionId?: string;
  /** Names as they were asked for. Default: all roles of its maker. */
  readonly roles?: readonly string[];
  /** Default 30 s, at most 15 minutes. */
  readonly ttlMs?: number;
}

export interface Ticket {
  readonly ticket: string;
  readonly expiresAtMs: number;
}

/** What a ticket is handed in for. A `stream` may hand in its own again, for 10 minutes, for the session it was first used for. */
export type TicketUse = { readonly for: "socket" | "console" } | { readonly for: "stream"; readonly sessionId: string };

/** Tenants, keys, tickets and console cookies. Addresses are those of the peers: failures are counted for each. */
export interface Auth {
  /** @throws BrokerError unauthenticated, expired, rate_limited */
  withKey(token: string, address: string): Promise<Principal>;
  /** @throws BrokerError unauthenticated, rate_limited */
  withTicket(ticket: string, use: TicketUse, address: string): Promise<Principal>;
  /** The principal of a console cookie; undefined when it is unknown or over. Whether it counts is for the Origin to say. */
  withCookie(cookie: string): Promise<Principal | undefined>;
  /** @throws BrokerError forbidden (above its maker), bad_request (ttl), not_available (roles that this version does not grant) */
  createTicket(maker: Principal, wanted: NewTicket): Promise<Ticket>;
  /** A ticket of 15 minutes for the console, as the oldest operator key that is valid. */
  createConsoleTicket(): Promise<Ticket>;
  /** A cookie value for the console, for as long as the principal is valid, at most 12 hours. */
  createCookie(principal: Principal): Promise<{ readonly cookie: string; readonly maxAgeS: number }>;
  /** The key itself is told here and never again. @throws BrokerError not_available (roles), bad_request */
  createKey(wanted: NewKey): Promise<KeyView & { readonly key: string }>;
  listKeys(): Promise<readonly KeyView[]>;
  /** Ends the key, its tickets and cookies, and its live connections. @throws BrokerError not_found */
  revokeKey(id: string): Promise<KeyView>;
  /** Calls back with the id of each principal that was revoked. Returns the way to stop. */
  onRevoked(listener: (principalId: string) => void): () => void;
  may(principal: Principal, action: Action): boolean;
  /** @throws BrokerError forbidden naming what is missing */
  allow(principal: Principal, action: Action): void;
  /** What a command needs (contract 3): the default for a control request that is not listed is `administer`. */
  actionOf(command: Command): Action;
}
