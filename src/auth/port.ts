import type { Command } from "../protocol/commands.ts";
import type { RequestKind } from "../protocol/events.ts";
import type { Action, Role } from "../protocol/roles.ts";
import type { NewSession } from "../protocol/sessions.schema.ts";
import type { AnswerTickets } from "./answer-tickets.ts";
import type { AuditEntry, AuditOrigin } from "./audit.ts";
import type { AuditFilter, AuditPage } from "./audit-list.ts";

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
  /** It came with a ticket, or with the cookie of one. */
  readonly ticket?: true;
}

/** A key as its administrators see it; the secret is not kept. */
export interface KeyView {
  readonly id: string;
  readonly tenant: string;
  readonly name: string;
  readonly roles: readonly Role[];
  /** Only this session exists for it. */
  readonly session_id: string | null;
  readonly created_at_ms: number;
  readonly expires_at_ms: number | null;
  readonly revoked_at_ms: number | null;
  /** To the minute. */
  readonly last_used_at_ms: number | null;
}

export interface NewKey {
  /** Made if it is new. */
  readonly tenant: string;
  readonly name: string;
  /** Names as they were asked for; checked when the key is made. Default: driver and approver. */
  readonly roles?: readonly string[];
  /** Narrows it to one session, which the caller has found in that tenant. */
  readonly sessionId?: string;
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
  /** @throws BrokerError forbidden (above its maker), bad_request (ttl, roles), rate_limited */
  createTicket(maker: Principal, wanted: NewTicket, origin?: AuditOrigin): Promise<Ticket>;
  /** A ticket of 15 minutes for the console, as the oldest operator key that is valid. */
  createConsoleTicket(): Promise<Ticket>;
  /** A cookie value for the console, for as long as the principal is valid, at most 12 hours. */
  createCookie(principal: Principal): Promise<{ readonly cookie: string; readonly maxAgeS: number }>;
  /** The key itself is told here and never again. @throws BrokerError forbidden (above its maker, another tenant's), bad_request */
  createKey(maker: Principal, wanted: NewKey, origin?: AuditOrigin): Promise<KeyView & { readonly key: string }>;
  /** Those that this principal manages: of its tenant, or, for operators, all. */
  listKeys(manager: Principal): Promise<readonly KeyView[]>;
  /** Ends the key, its tickets and cookies, and its live connections. @throws BrokerError not_found, forbidden (above its manager) */
  revokeKey(manager: Principal, id: string, origin?: AuditOrigin): Promise<KeyView>;
  /** Calls back with the id of each principal that was revoked. Returns the way to stop. */
  onRevoked(listener: (principalId: string) => void): () => void;
  may(principal: Principal, action: Action): boolean;
  /** @throws BrokerError forbidden naming what is missing */
  allow(principal: Principal, action: Action): void;
  /** All that a command needs (PROTOCOL.md 6.2, 6.3); for an answer, with the kind of its request where that is open. */
  actionsOf(command: Command, kind?: RequestKind): readonly Action[];
  /** What creating a session needs. */
  actionOfCreation(input: NewSession): Action;
  /** Records what has no transaction of its own. Resolves when it is durable. */
  record(entry: AuditEntry): Promise<void>;
  listAudit(filter: AuditFilter): Promise<AuditPage>;
  /** Single-use tickets for links that answer one request. */
  readonly answers: AnswerTickets;
}
