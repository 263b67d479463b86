/** Largest agent line that is forwarded, in bytes (contract 2). */
export const AGENT_LINE_LIMIT_BYTES = 64 * 1024 * 1024;
/** Largest inbound frame or body for a query, and for anything else, in bytes (contract 2). */
export const QUERY_LIMIT_BYTES = 32 * 1024 * 1024;
export const INBOUND_LIMIT_BYTES = 1024 * 1024;
/** Longest client id: command ids, idempotency keys, request ids. In characters. */
export const ID_LIMIT_CHARS = 128;
/** Deepest nesting of a client's JSON. Deeper input is refused before anything recurses into it. */
export const JSON_DEPTH_LIMIT = 100;
