/** One row of the failure table: HTTP status, WebSocket close code, and whether trying again can help. */
export interface Problem {
  readonly status: number;
  /** 4000-4499: come back with your last seq; 4500-4999: do not (contract 5). Used only where the problem ends a socket. */
  readonly close: number;
  readonly retry: boolean;
  readonly summary: string;
}

const row = (status: number, close: number, retry: boolean, summary: string): Problem => ({
  status,
  close,
  retry,
  summary,
});

/** Every failure a client or an operator can be told, the same on every transport. docs/errors.md is held against it. */
export const PROBLEMS = {
  bad_request: row(400, 4500, false, "The request or frame is malformed; `details.field` names the part."),
  unauthenticated: row(401, 4502, false, "No valid key, token, ticket or cookie."),
  expired: row(401, 4501, false, "The key or ticket has expired or was revoked."),
  forbidden: row(403, 4503, false, "The principal's roles do not allow this."),
  origin_refused: row(403, 4503, false, "The Origin is not allowed; list it in PATCHBAY_ALLOWED_ORIGINS."),
  host_refused: row(421, 4503, false, "The Host is not ours; list it in PATCHBAY_ALLOWED_HOSTS."),
  not_found: row(404, 4504, false, "Nothing here: it never existed, was deleted, or belongs to another tenant."),
  not_available: row(501, 4505, false, "Part of the contract that this version does not serve yet."),
  too_large: row(413, 1009, false, "The body or frame is over its limit."),
  unsupported_media_type: row(415, 4500, false, "Bodies are application/json."),
  rate_limited: row(429, 4029, true, "Too many attempts; wait and try again."),
  cursor_ahead: row(
    400,
    4506,
    false,
    "The cursor is above the session's head; it belongs to another session or server.",
  ),
  id_reused: row(
    409,
    4507,
    false,
    "The command id, idempotency key or message uuid was used before with another body.",
  ),
  request_id_in_use: row(409, 4507, false, "This session has used that control request_id before; choose a new one."),
  request_unknown: row(404, 4504, false, "This session has no request with that id."),
  request_already_answered: row(409, 4509, false, "Somebody answered first; `details` says who, when and what."),
  request_settled: row(
    409,
    4509,
    false,
    "The request was cancelled, expired or lost with its agent; nothing waits for an answer.",
  ),
  invalid_answer: row(
    400,
    4500,
    false,
    "The answer does not fit the request; `details.field` names the part. The request stays open.",
  ),
  session_ended: row(409, 4508, false, "The session has ended; it can be read but not driven."),
  agent_arg_refused: row(400, 4500, false, "The agent argument or variable is not on the allow-list."),
  cwd_refused: row(400, 4500, false, "The folder is not inside the tenant's part of the workspace root."),
  sql_failed: row(400, 4500, false, "The SQL statement failed or is not served; nothing of it has happened."),
  sql_limit: row(
    400,
    4500,
    false,
    "The SQL needs more time, memory or space than is allowed; nothing of it has happened.",
  ),
  agent_unavailable: row(
    503,
    4005,
    true,
    "The agent could not be started or has gone; `details` has its exit code and last stderr lines.",
  ),
  runner_unavailable: row(503, 4005, true, "The program that owns the session's agent cannot be reached; try again."),
  runner_in_use: row(409, 4007, true, "Another runner has this name and is linked, or was until a moment ago."),
  history_gone: row(410, 4510, false, "Retention removed these events; read from `details.first_available`."),
  slow_reader: row(503, 4001, true, "The client read too slowly; come back with the last seq."),
  draining: row(503, 4002, true, "The server is shutting down; come back with the last seq."),
  heartbeat_lost: row(408, 4003, true, "Nothing was heard for two heartbeats."),
  auth_timeout: row(408, 4004, true, "No auth frame arrived in time."),
  internal: row(500, 4006, true, "A fault of the server; its log has the details."),
  config_invalid: row(500, 4500, false, "A configuration value is unknown or wrong; the message names it."),
  port_in_use: row(500, 4500, false, "The address is taken; choose another PATCHBAY_PORT."),
  data_dir_unusable: row(500, 4500, false, "The data directory cannot be written."),
  data_dir_in_use: row(500, 4500, false, "Another server holds the data directory."),
  data_dir_newer: row(500, 4500, false, "The data directory was made by a newer version."),
} as const satisfies Record<string, Problem>;

export type ProblemCode = keyof typeof PROBLEMS;

/** The error that crosses room doors. Callers switch on `code`, never on the message, which ends with what to do next. */
export class BrokerError extends Error {
  readonly code: ProblemCode;
  readonly details: Readonly<Record<string, unknown>> | undefined;

  constructor(
    code: ProblemCode,
    message: string,
    options: { details?: Readonly<Record<string, unknown>>; cause?: unknown } = {},
  ) {
    super(message, options.cause === undefined ? undefined : { cause: options.cause });
    this.name = "BrokerError";
    this.code = code;
    this.details = options.details;
  }
}

/** The wire form of a failure (contract 4: `{error: {code, message, retry, details?}}`). */
export interface ProblemBody {
  readonly code: ProblemCode;
  readonly message: string;
  readonly retry: boolean;
  readonly details?: Readonly<Record<string, unknown>>;
}

/** A failure as clients see it; anything that is not a BrokerError becomes `internal` without its text. */
export function problemBody(error: unknown): ProblemBody {
  if (!(error instanceof BrokerError)) {
    return { code: "internal", message: "The server failed; its log has the details. Try again.", retry: true };
  }
  const { code, message, details } = error;
  return { code, message, retry: PROBLEMS[code].retry, ...(details && { details }) };
}
