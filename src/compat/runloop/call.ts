import type { FastifyReply, FastifyRequest } from "fastify";
import type { Principal } from "../../auth/port.ts";
import { ID_LIMIT_CHARS } from "../../protocol/limits.ts";
import { BrokerError } from "../../protocol/problems.ts";
import type { Action } from "../../protocol/roles.ts";
import type { Actor, Session } from "../../sessions/port.ts";
import type { Creation } from "./devbox/create.ts";
import type { Devboxes } from "./devbox/devboxes.ts";
import type { Devbox } from "./devbox/record.ts";
import type { RunloopHost, RunloopOptions, RunloopParts } from "./port.ts";

/** What the routes of this dialect work with. */
export interface RunloopContext extends Pick<RunloopParts, "auth" | "sessions" | "sql" | "secrets"> {
  readonly host: RunloopHost;
  readonly devboxes: Devboxes;
  readonly options: RunloopOptions;
  readonly createDevbox: (creation: Creation) => Promise<Devbox>;
}

/** One request of an authenticated caller. */
export interface RunloopCall {
  readonly request: FastifyRequest;
  readonly reply: FastifyReply;
  readonly principal: Principal;
  readonly context: RunloopContext;
}

/** A row of the route table; who may call is said in it. */
export interface RunloopRoute {
  readonly method: "GET" | "POST" | "DELETE";
  readonly url: string;
  readonly access: Action;
  /** Takes bodies up to the query limit; others up to the general one. */
  readonly carriesPayload?: true;
  readonly handle: (call: RunloopCall) => unknown;
}

/** The tenant in which this principal may look; undefined = all. */
export const scopeOf = ({ roles, tenant }: Principal): string | undefined =>
  roles.includes("operator") ? undefined : tenant;

export const actorOf = ({ context, request, principal }: RunloopCall): Actor =>
  context.host.actorOf(request, principal);

/** The `:id` of the path. */
export function pathId({ params }: FastifyRequest): string {
  const id = typeof params === "object" && params !== null && "id" in params ? params.id : undefined;
  return typeof id === "string" ? id : "";
}

/** The same for every try of one call of a client, which thereby has one effect. @throws BrokerError bad_request */
export function requestIdOf({ headers }: FastifyRequest): string | undefined {
  const id = headers["x-request-id"];
  if (id === undefined || id === "") return undefined;
  if (typeof id === "string" && id.length <= ID_LIMIT_CHARS) return id;
  throw new BrokerError("bad_request", `x-request-id: must be up to ${ID_LIMIT_CHARS} characters.`);
}

/** The axon of this id. Foreign, deleted and missing look the same. @throws BrokerError not_found */
export async function findAxon(
  { sessions }: Pick<RunloopContext, "sessions">,
  principal: Principal,
  id: string,
): Promise<Session> {
  const mayLook = principal.sessionId === undefined || principal.sessionId === id;
  const session = mayLook ? await sessions.find(id, scopeOf(principal)) : undefined;
  if (session !== undefined && session.view().state !== "ended") return session;
  throw new BrokerError("not_found", "Axon not found.");
}

/** The axon that the path names. @throws BrokerError not_found */
export const axonOf = ({ context, principal, request }: RunloopCall): Promise<Session> =>
  findAxon(context, principal, pathId(request));

/** @throws BrokerError forbidden: a key for one session reaches nothing beside it */
export function refuseNarrowed({ sessionId }: Principal): void {
  if (sessionId === undefined) return;
  throw new BrokerError("forbidden", "This key is for one axon only. Use one for all of them.");
}
