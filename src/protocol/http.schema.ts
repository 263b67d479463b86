import { z } from "zod";
import { AUDIT_KINDS } from "./audit.ts";
import { clientId, parseWith } from "./commands.schema.ts";
import type { SessionState } from "./events.ts";
import type { Cursor } from "./frames.ts";
import { isJsonObject } from "./json.ts";
import { runnerLabels } from "./sessions.schema.ts";

/** Query strings, headers and small bodies of contract 4: as strict as everything else that comes in. */
const cursorText = z
  .string()
  .regex(/^(\d{1,15}|head)$/, "must be a number of 0 or more, or head")
  .transform((text): Cursor => (text === "head" ? text : Number(text)));
const PAGE_LIMIT = 1_000;
const limitText = z
  .string()
  .regex(/^\d{1,6}$/, "must be a whole number")
  .transform(Number)
  .refine((limit) => limit >= 1 && limit <= PAGE_LIMIT, `must be from 1 to ${PAGE_LIMIT}`)
  .default(100);
const flagText = z.enum(["true", "false"]).transform((text) => text === "true");
const ticket = z.string().optional();

const STATES = [
  "starting",
  "idle",
  "running",
  "requires_action",
  "hibernated",
  "failed",
  "ended",
] as const satisfies readonly SessionState[];
const METADATA = "metadata.";

const pageQuery = z.strictObject({
  after: cursorText.default(0),
  limit: limitText,
  event_type: z.string().min(1).max(200).optional(),
});
const streamQuery = z.strictObject({ after: cursorText.default(0), previews: flagText.default(true), ticket });
const transcriptQuery = z.strictObject({ previews: flagText.default(false) });
const socketQuery = z
  .strictObject({
    session: clientId.optional(),
    after: cursorText.optional(),
    previews: flagText.optional(),
    ticket,
  })
  .refine((query) => query.session !== undefined || query.after === undefined, {
    message: "belongs to a session; name it in ?session=",
    path: ["after"],
  });
const sessionListQuery = z.strictObject({
  limit: limitText,
  cursor: z.string().min(1).max(1_024).optional(),
  state: z.enum(STATES).optional(),
  name: z.string().min(1).max(200).optional(),
  metadata: z.record(z.string(), z.string()),
});
const runnerName = z.string().regex(/^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$/, "must be 1 to 63 letters, digits, . _ or -");
const runnerId = z.string().regex(/^[A-Za-z0-9_-]{16,64}$/, "must be 16 to 64 letters, digits, _ or -");
const labelTexts = z
  .union([z.string(), z.array(z.string())])
  .default([])
  .transform((value) =>
    [value].flat().map((text) => [text.split("=", 1)[0] ?? "", text.replace(/^[^=]*=?/, "")] as const),
  )
  .refine((pairs) => new Set(pairs.map(([key]) => key)).size === pairs.length, "names a label twice")
  .transform((pairs) => Object.fromEntries(pairs))
  .pipe(runnerLabels);
const runnerQuery = z.strictObject({ name: runnerName, instance: runnerId, process: runnerId, label: labelTexts });
const deletionQuery = z.strictObject({ purge: flagText.default(false) });

const roleNames = z.array(z.string().max(32)).max(16);
const newTicket = z.strictObject({
  session_id: clientId.optional(),
  roles: roleNames.optional(),
  ttl_s: z.number().optional(),
});
const newKey = z.strictObject({
  name: z.string().min(1).max(200).optional(),
  tenant: z.string().min(1).max(63).optional(),
  roles: roleNames.optional(),
  session_id: clientId.optional(),
  expires_at_ms: z.int().positive().optional(),
});

const AUDIT_PAGE_LIMIT = 200;
const timeText = z
  .string()
  .regex(/^\d{1,15}$/, "must be milliseconds since the epoch")
  .transform(Number);
const auditQuery = z.strictObject({
  after: z
    .string()
    .regex(/^\d{1,15}$/, "must be a number of 0 or more")
    .transform(Number)
    .default(0),
  limit: z
    .string()
    .regex(/^\d{1,3}$/, "must be a whole number")
    .transform(Number)
    .refine((limit) => limit >= 1 && limit <= AUDIT_PAGE_LIMIT, `must be from 1 to ${AUDIT_PAGE_LIMIT}`)
    .optional(),
  tenant: z.string().min(1).max(63).optional(),
  session_id: clientId.optional(),
  kind: z.enum(AUDIT_KINDS).optional(),
  actor: z.string().min(1).max(200).optional(),
  since: timeText.optional(),
  until: timeText.optional(),
});
/** The query of GET /v1/audit. */
export type AuditQuery = z.infer<typeof auditQuery>;

/** GET …/events. @throws BrokerError bad_request */
export const parsePageQuery = (query: unknown) => parseWith(pageQuery, query);
/** GET …/events/stream. @throws BrokerError bad_request */
export const parseStreamQuery = (query: unknown) => parseWith(streamQuery, query);
/** GET …/transcript. @throws BrokerError bad_request */
export const parseTranscriptQuery = (query: unknown) => parseWith(transcriptQuery, query);
/** The `Last-Event-ID` header. @throws BrokerError bad_request */
export const parseLastEventId = (header: unknown): Cursor => parseWith(cursorText, header, "Last-Event-ID");
/** GET /v1/ws. @throws BrokerError bad_request */
export const parseSocketQuery = (query: unknown) => parseWith(socketQuery, query);
/** GET /v1/runner. `label=<key>=<value>`, as often as there are labels. @throws BrokerError bad_request */
export const parseRunnerQuery = (query: unknown) => parseWith(runnerQuery, query);
/** DELETE /v1/sessions/{id}. @throws BrokerError bad_request */
export const parseDeletionQuery = (query: unknown) => parseWith(deletionQuery, query);
/** POST /v1/tickets. @throws BrokerError bad_request */
export const parseNewTicket = (body: unknown) => parseWith(newTicket, body ?? {});
/** POST /v1/keys. @throws BrokerError bad_request */
export const parseNewKey = (body: unknown) => parseWith(newKey, body ?? {});
/** GET /v1/audit. @throws BrokerError bad_request */
export const parseAuditQuery = (query: unknown): AuditQuery => parseWith(auditQuery, query);

/** GET /v1/sessions. `metadata.<key>=<value>` names one entry; all that are named must match. @throws BrokerError bad_request */
export function parseSessionListQuery(query: unknown) {
  const named = Object.entries(isJsonObject(query) ? query : {});
  const isMetadata = ([name]: readonly [string, unknown]): boolean => name.startsWith(METADATA);
  const metadata = named.filter(isMetadata).map(([name, value]) => [name.slice(METADATA.length), value] as const);
  return parseWith(sessionListQuery, {
    ...Object.fromEntries(named.filter((entry) => !isMetadata(entry))),
    metadata: Object.fromEntries(metadata),
  });
}
