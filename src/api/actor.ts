import { type AuditOrigin, actorOf as actorFrom } from "../auth/audit.ts";
import type { Actor } from "../sessions/port.ts";
import type { Call } from "./context.ts";
import { addressOf } from "./credentials.ts";

/** Where a plain HTTP request came from, for the audit record. */
export const originOf = ({ request }: Pick<Call, "request">): AuditOrigin => ({
  address: addressOf(request),
  via: "http",
});

/** Who acts by a plain HTTP request. */
export const actorOf = (call: Pick<Call, "request" | "principal">): Actor => actorFrom(call.principal, originOf(call));
