import type { FastifyReply, FastifyRequest } from "fastify";
import { BrokerError } from "../../protocol/problems.ts";
import type { PublicCall, Route } from "../context.ts";
import { addressOf, cookieName, ticketOf } from "../credentials.ts";

const CONTENT_SECURITY_POLICY = [
  "default-src 'none'",
  "script-src 'self'",
  "style-src 'self'",
  "img-src 'self' data:",
  "connect-src 'self'",
  "base-uri 'none'",
  "form-action 'none'",
  "frame-ancestors 'none'",
].join("; ");

function sendFile({ context, reply }: PublicCall, name: string): FastifyReply {
  const file = context.page.get(name);
  if (file === undefined) throw new BrokerError("not_found", "There is no such file.");
  return reply.header("content-security-policy", CONTENT_SECURITY_POLICY).type(file.type).send(file.bytes);
}

/** The path to go on to: the same, without the ticket, which must not stay in the history. */
function withoutTicket(request: FastifyRequest): string {
  const query = new URLSearchParams(request.url.split("?")[1] ?? "");
  query.delete("ticket");
  return query.size > 0 ? `/?${query.toString()}` : "/";
}

/** A person follows the link that the server printed: ticket in, cookie out (contract 4). */
async function redeem({ context, request, reply }: PublicCall, ticket: string): Promise<unknown> {
  const principal = await context.auth.withTicket(ticket, { for: "console" }, addressOf(request));
  const { cookie, maxAgeS } = await context.auth.createCookie(principal);
  const secure = context.config.tls === undefined ? "" : "; Secure";
  const value = `${cookieName(request)}=${cookie}; Path=/; HttpOnly; SameSite=Strict; Max-Age=${maxAgeS}${secure}`;
  return reply.header("set-cookie", value).redirect(withoutTicket(request), 303);
}

async function index(call: PublicCall): Promise<unknown> {
  const ticket = ticketOf(call.request);
  return ticket === undefined ? sendFile(call, "index.html") : redeem(call, ticket);
}

async function asset(call: PublicCall): Promise<unknown> {
  const { params } = call.request;
  const name = typeof params === "object" && params !== null && "file" in params ? String(params.file) : "";
  return sendFile(call, name);
}

/** Public: the page holds no data; what it shows it asks for with its cookie. */
export const PAGE_ROUTES: readonly Route[] = [
  { method: "GET", url: "/", access: "public", handle: index },
  { method: "GET", url: "/assets/:file", access: "public", handle: asset },
];
