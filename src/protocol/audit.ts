/** What the audit record keeps (PROTOCOL.md 9): decisions, and changes of what somebody may do. */
export const AUDIT_KINDS = [
  "answer",
  "policy",
  "control",
  "mode",
  "key",
  "ticket",
  "session",
  "webhook",
  "secret",
] as const;
export type AuditKind = (typeof AUDIT_KINDS)[number];
