import { createHash } from "node:crypto";
import type { AuditKind } from "../protocol/audit.ts";
import type { Role } from "../protocol/roles.ts";
import type { Write } from "../store/port.ts";
import type { Principal } from "./port.ts";

/** Texts and decisions longer than this are cut in the record, with their full length and hash beside them. In bytes. */
export const AUDIT_TEXT_LIMIT_BYTES = 64 * 1024;

/** Where a request came from. */
export interface AuditOrigin {
  readonly address?: string;
  readonly connection_id?: string;
  readonly via?: "ws" | "http";
}

/** Who did it: a key, or the server itself (`server`, `policy:…`). `ticket`: with a ticket or console cookie of that key. */
export interface AuditActor extends AuditOrigin {
  readonly id: string;
  readonly roles?: readonly Role[];
  readonly ticket?: true;
}

/** One thing that somebody decided or changed. */
export interface AuditEntry {
  readonly kind: AuditKind;
  readonly tenant: string;
  readonly session_id?: string;
  readonly actor: AuditActor;
  readonly request_id?: string;
  readonly tool_name?: string;
  /** Of a control request, or what was done to a key, ticket or session. */
  readonly subtype?: string;
  /** The input that was shown, whole; the record cuts it. */
  readonly shown?: string;
  /** Hex. Made from `shown` if absent. */
  readonly shown_sha256?: string;
  /** Any JSON. */
  readonly decision?: unknown;
  readonly outcome: string;
  /** The event of the session's log that says the same. */
  readonly seq?: number;
}

/** An entry as it was recorded. */
export interface AuditRecord extends AuditEntry {
  /** Ascending in the order of recording, over all tenants. */
  readonly id: number;
  readonly at_ms: number;
  /** The whole length of what was shown, in UTF-8. */
  readonly shown_bytes?: number;
}

/** The server itself, where no principal asked for it. */
export const SERVER_ACTOR: AuditActor = Object.freeze({ id: "server" });

export function actorOf({ id, roles, ticket }: Principal, origin: AuditOrigin = {}): AuditActor {
  return { id, roles, ...(ticket && { ticket }), ...origin };
}

/** What is known of an actor for other purposes does not belong into the record. */
function recordedActor({ id, roles, address, connection_id, via, ticket }: AuditActor): AuditActor {
  return {
    id,
    ...(roles !== undefined && { roles }),
    ...(address !== undefined && { address }),
    ...(connection_id !== undefined && { connection_id }),
    ...(via !== undefined && { via }),
    ...(ticket && { ticket }),
  };
}

const sha256 = (text: string): string => createHash("sha256").update(text).digest("hex");

/** The first part of a text, whole characters only. */
function cut(text: string): { readonly text: string; readonly bytes: number } {
  const bytes = Buffer.from(text);
  if (bytes.length <= AUDIT_TEXT_LIMIT_BYTES) return { text, bytes: bytes.length };
  // As a stream, a decoder keeps an unfinished character back.
  const decoder = new TextDecoder("utf-8", { ignoreBOM: true });
  return { text: decoder.decode(bytes.subarray(0, AUDIT_TEXT_LIMIT_BYTES), { stream: true }), bytes: bytes.length };
}

function shownPart({ shown, shown_sha256 }: AuditEntry): Partial<AuditRecord> {
  if (shown === undefined) return {};
  const { text, bytes } = cut(shown);
  return { shown: text, shown_sha256: shown_sha256 ?? sha256(shown), shown_bytes: bytes };
}

function decisionPart({ decision }: AuditEntry): Partial<AuditRecord> {
  if (decision === undefined) return {};
  const json = JSON.stringify(decision);
  const { text, bytes } = cut(json);
  return { decision: text === json ? decision : { cut: text, bytes, sha256: sha256(json) } };
}

/** The write that records an entry. It belongs into the transaction of what it records, so that neither is there without the other. */
export function auditWrite(entry: AuditEntry, nowMs: number): Write {
  const recorded: Omit<AuditRecord, "id"> = {
    at_ms: nowMs,
    ...entry,
    actor: recordedActor(entry.actor),
    ...shownPart(entry),
    ...decisionPart(entry),
  };
  return {
    sql: "INSERT INTO audit (at_ms, tenant, kind, session, actor, entry) VALUES (?, ?, ?, ?, ?, ?)",
    params: [nowMs, entry.tenant, entry.kind, entry.session_id ?? null, entry.actor.id, JSON.stringify(recorded)],
  };
}
