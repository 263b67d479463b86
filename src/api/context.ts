import type { Duplex } from "node:stream";
import type { FastifyBaseLogger, FastifyReply, FastifyRequest } from "fastify";
import type { Policies } from "../auth/policy/policies.ts";
import type { Auth, Principal } from "../auth/port.ts";
import { BrokerError } from "../protocol/problems.ts";
import type { Action } from "../protocol/roles.ts";
import type { Session, Sessions } from "../sessions/port.ts";
import type { Webhooks } from "../webhooks/port.ts";
import type { ApiConfig } from "./config.ts";
import type { Live } from "./live.ts";
import type { Metrics } from "./metrics.ts";
import type { PageFiles } from "./page-files.ts";

/** A runner that dials in, and how it stands. */
export interface RunnerStanding {
  readonly tenant: string;
  readonly name: string;
  labels(): Readonly<Record<string, string>>;
  about(): Readonly<Record<string, unknown>>;
  isLinked(): boolean;
  awayMs(): number;
  readonly remote: { runs(): readonly string[] };
}

/** Where runners that dial in are let in: the agents' room, as far as this one knows it. */
export interface RunnerDoor {
  /** @throws BrokerError runner_in_use */
  refuseSecond(identity: DialledIn): void;
  /** Takes over the stream. @throws BrokerError runner_in_use */
  accept(identity: DialledIn, stream: Duplex): void;
  list(tenant?: string): readonly RunnerStanding[];
}

/** Who dials in: the tenant is its key's, the rest is its own word. */
export interface DialledIn {
  readonly tenant: string;
  readonly name: string;
  readonly instance: string;
  readonly process: string;
  readonly labels: Readonly<Record<string, string>>;
}

/** What every route works with. */
export interface ApiContext {
  readonly auth: Auth;
  readonly sessions: Sessions;
  readonly policies: Policies;
  readonly webhooks: Webhooks;
  readonly runners: RunnerDoor;
  readonly config: ApiConfig;
  readonly logger: FastifyBaseLogger;
  readonly live: Live;
  readonly metrics: Metrics;
  readonly page: Pick<PageFiles, "get">;
}

/** One request of anybody. */
export interface PublicCall {
  readonly request: FastifyRequest;
  readonly reply: FastifyReply;
  readonly context: ApiContext;
}

/** One request of an authenticated caller. */
export interface Call extends PublicCall {
  readonly principal: Principal;
}

interface RouteBase {
  readonly method: "GET" | "POST" | "PUT" | "PATCH" | "DELETE";
  readonly url: string;
  /** Takes bodies up to the query limit; others up to the general one. */
  readonly carriesQuery?: true;
  /** An event stream: also takes `?ticket=`. */
  readonly takesTicket?: true;
}

/** A row of the route table. Who may call is said in it, so no route can forget to ask: everybody, who may do an action, or operators. */
export type Route = RouteBase &
  (
    | { readonly access: "public"; readonly handle: (call: PublicCall) => unknown }
    | { readonly access: Action | "operate"; readonly handle: (call: Call) => unknown }
  );

/** The tenant in which this principal may look; undefined = all. */
export const scopeOf = (principal: Principal): string | undefined =>
  principal.roles.includes("operator") ? undefined : principal.tenant;

const noSession = (): BrokerError => new BrokerError("not_found", "There is no session with this id.");

/** The session, if it is there for this principal. Foreign and missing look the same. @throws BrokerError not_found */
export async function findSession(context: ApiContext, principal: Principal, id: string): Promise<Session> {
  if (principal.sessionId !== undefined && principal.sessionId !== id) throw noSession();
  const session = await context.sessions.find(id, scopeOf(principal));
  if (session === undefined) throw noSession();
  return session;
}

/** The session that the path names. @throws BrokerError not_found */
export const sessionOf = ({ context, principal, request }: Call): Promise<Session> =>
  findSession(context, principal, pathId(request));

/** The `:id` of the path. */
export function pathId(request: FastifyRequest): string {
  const { params } = request;
  const id = typeof params === "object" && params !== null && "id" in params ? params.id : undefined;
  return typeof id === "string" ? id : "";
}

/** @throws BrokerError forbidden: a key or ticket for one session reaches nothing beside it */
export function refuseNarrowed(principal: Principal): void {
  if (principal.sessionId === undefined) return;
  throw new BrokerError("forbidden", "This key or ticket is for one session only. Use one for all of them.");
}
