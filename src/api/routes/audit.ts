import { addAbortSignal, Readable } from "node:stream";
import type { AuditFilter } from "../../auth/audit-list.ts";
import type { Auth, Principal } from "../../auth/port.ts";
import { type AuditQuery, parseAuditQuery } from "../../protocol/http.schema.ts";
import { BrokerError } from "../../protocol/problems.ts";
import { type Call, type Route, refuseNarrowed, scopeOf } from "../context.ts";

const NDJSON = "application/x-ndjson";
const PAGE = 100;

/** Whose record is read: an admin's own tenant's, whatever he asks for; an operator's choice. @throws BrokerError forbidden */
function tenantOf(principal: Principal, asked: string | undefined): string | undefined {
  const scope = scopeOf(principal);
  if (scope === undefined || asked === undefined || asked === scope) return scope ?? asked;
  throw new BrokerError("forbidden", "tenant: only operators read other tenants' records. Leave it out.", {
    details: { field: "tenant" },
  });
}

/** One record a line, from the first that fits to the last there is when it is reached; read as fast as the client takes it. */
async function* lines(auth: Auth, filter: Omit<AuditFilter, "limit">): AsyncGenerator<string> {
  let { after } = filter;
  for (;;) {
    const { entries, next } = await auth.listAudit({ ...filter, after, limit: PAGE });
    if (entries.length > 0) yield entries.map((entry) => `${JSON.stringify(entry)}\n`).join("");
    if (entries.length < PAGE) return;
    after = next;
  }
}

function sendAll({ context, reply }: Call, filter: Omit<AuditFilter, "limit">): unknown {
  const stream = Readable.from(lines(context.auth, filter), { objectMode: false });
  // Neither a client that stopped reading nor a server that stops waits for the rest.
  reply.raw.setTimeout(context.config.slowReaderMs, () => stream.destroy());
  addAbortSignal(context.live.draining, stream);
  return reply.type(NDJSON).send(stream);
}

async function list(call: Call): Promise<unknown> {
  const { context, principal, request } = call;
  refuseNarrowed(principal);
  const { limit, ...query }: AuditQuery = parseAuditQuery(request.query);
  const filter = { ...query, tenant: tenantOf(principal, query.tenant) };
  if (!(request.headers.accept ?? "").includes(NDJSON)) {
    return context.auth.listAudit({ ...filter, limit: limit ?? PAGE });
  }
  if (limit === undefined) return sendAll(call, filter);
  throw new BrokerError("bad_request", `limit: ${NDJSON} is the whole; leave it out.`, { details: { field: "limit" } });
}

export const AUDIT_ROUTES: readonly Route[] = [{ method: "GET", url: "/v1/audit", access: "administer", handle: list }];
