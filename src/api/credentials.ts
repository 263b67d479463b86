import type { FastifyRequest } from "fastify";
import type { Auth, Principal, TicketUse } from "../auth/port.ts";
import { BrokerError } from "../protocol/problems.ts";
import type { OriginKind } from "./origin.ts";

/** Named after the port: browsers share cookies between the ports of a host, and two servers must not log each other out. */
export const cookieName = (request: FastifyRequest): string => `patchbay_${request.socket.localPort ?? 0}`;

/** The peer's address, in one spelling: failures are counted for it. */
export function addressOf(request: FastifyRequest): string {
  return request.ip.replace(/^::ffff:/, "");
}

function cookieOf(request: FastifyRequest): string | undefined {
  const pairs = (request.headers.cookie ?? "").split(";").map((pair) => pair.trim());
  const start = `${cookieName(request)}=`;
  return pairs.find((pair) => pair.startsWith(start))?.slice(start.length);
}

/**
 * Whether our own page sent this. Browsers leave Origin out of same-origin GETs; then Sec-Fetch-Site, which no page can set, says the same.
 */
function fromOwnPage(request: FastifyRequest, origin: OriginKind): boolean {
  return origin === "own" || (origin === "absent" && request.headers["sec-fetch-site"] === "same-origin");
}

function bearerOf(header: string): string {
  const token = /^Bearer +(\S+) *$/i.exec(header)?.[1];
  if (token !== undefined) return token;
  throw new BrokerError(
    "unauthenticated",
    "The Authorization header must be `Bearer <key>`. Correct it and try again.",
  );
}

/** `?ticket=` of the URL. */
export function ticketOf(request: FastifyRequest): string | undefined {
  const { query } = request;
  const ticket = typeof query === "object" && query !== null && "ticket" in query ? query.ticket : undefined;
  return typeof ticket === "string" && ticket !== "" ? ticket : undefined;
}

/**
 * Who sends this request: by header, else by ticket where the route takes one, else by console cookie. Undefined when it carries none of
 * them. No address counts as authenticated. @throws BrokerError unauthenticated, expired, rate_limited
 */
export async function authenticate(
  auth: Auth,
  request: FastifyRequest,
  origin: OriginKind,
  ticketUse: TicketUse | undefined,
): Promise<Principal | undefined> {
  const address = addressOf(request);
  const { authorization } = request.headers;
  if (authorization !== undefined) return auth.withKey(bearerOf(authorization), address);
  const ticket = ticketUse === undefined ? undefined : ticketOf(request);
  if (ticketUse !== undefined && ticket !== undefined) return auth.withTicket(ticket, ticketUse, address);
  const cookie = cookieOf(request);
  if (cookie === undefined || !fromOwnPage(request, origin)) return undefined;
  return auth.withCookie(cookie);
}
