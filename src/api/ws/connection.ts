import type { FastifyRequest } from "fastify";
import { nanoid } from "nanoid";
import type { WebSocket } from "ws";
import { actorOf } from "../../auth/audit.ts";
import type { Principal } from "../../auth/port.ts";
import { parseClientFrame } from "../../protocol/frames.schema.ts";
import { SUBPROTOCOL } from "../../protocol/frames.ts";
import { parseSocketQuery } from "../../protocol/http.schema.ts";
import { BrokerError } from "../../protocol/problems.ts";
import { LINK_DEFAULTS, type Link, openLink } from "../../transport/websocket.ts";
import type { ApiContext } from "../context.ts";
import { addressOf } from "../credentials.ts";
import { createFrames, type Frames, refuseFrame } from "./frames.ts";
import { createInbox, type Inbound, type Inbox } from "./inbox.ts";
import { createSubscriptions } from "./subscriptions.ts";

/** Frames that may wait for their turn on one socket. */
const INBOX_FRAMES = 256;
/** What a socket may send before its `auth` frame is complete; behind it, more is left unread until authentication is done. In bytes. */
const UNAUTHENTICATED_BYTES = 64 * 1024;

type Phase =
  | { readonly name: "unauthenticated"; readonly timer: NodeJS.Timeout }
  | { readonly name: "authenticating" }
  | { readonly name: "open"; readonly principal: Principal; readonly frames: Frames };

/** @throws BrokerError unauthenticated when the first frame is no `auth`, or as auth says */
async function readAuth(
  context: ApiContext,
  request: FastifyRequest,
  frame: Inbound | BrokerError,
): Promise<Principal> {
  const first = frame instanceof BrokerError ? undefined : parseClientFrame(frame.text);
  if (first?.type !== "auth") {
    throw new BrokerError("unauthenticated", 'The first frame must be {type:"auth", token}. Connect again with one.');
  }
  return context.auth.withKey(first.token, addressOf(request));
}

/** Reads an upgraded socket only as far as an unauthenticated one deserves. Returns how to stop. */
function limitUnauthenticated(
  request: FastifyRequest,
  inbox: () => Inbox,
  link: Link,
  waiting: () => boolean,
): () => void {
  const { socket } = request.raw;
  let received = 0;
  const count = (chunk: Buffer): void => {
    received += chunk.length;
    if (received <= UNAUTHENTICATED_BYTES) return;
    if (waiting() && inbox().waiting() === 0) {
      link.close(new BrokerError("too_large", "The auth frame is too large. Connect again."));
    } else {
      inbox().hold(true);
    }
  };
  socket.on("data", count);
  return () => {
    socket.off("data", count);
    inbox().hold(false);
  };
}

/** Serves one accepted WebSocket (contract 5). */
export function acceptSocket(ws: WebSocket, request: FastifyRequest, context: ApiContext): void {
  const { config, live } = context;
  const { heartbeatMs, slowReaderMs, inFlightBytes } = config;
  const link = openLink(ws, request.raw.socket, { ...LINK_DEFAULTS, heartbeatMs, slowReaderMs, inFlightBytes });
  const connectionId = nanoid();
  const subscriptions = createSubscriptions(context, link, (principal) => ({
    ...actorOf(principal, { address: addressOf(request), via: "ws" }),
    connection_id: connectionId,
  }));
  const late = new BrokerError("auth_timeout", "No auth frame arrived in time. Connect again.");
  let phase: Phase = {
    name: "unauthenticated",
    timer: setTimeout(() => link.close(late), config.authTimeoutMs).unref(),
  };
  let release = (): void => {};

  const open = async (principal: Principal): Promise<void> => {
    if (phase.name === "unauthenticated") clearTimeout(phase.timer);
    const actor = actorOf(principal, { address: addressOf(request), connection_id: connectionId, via: "ws" });
    phase = { name: "open", principal, frames: createFrames(context, link, principal, actor, subscriptions) };
    release();
    link.send({
      type: "welcome",
      protocol: SUBPROTOCOL,
      connection_id: connectionId,
      principal: { id: principal.id, tenant: principal.tenant, roles: principal.roles },
      heartbeat_ms: heartbeatMs,
    });
    const { session, after, previews } = parseSocketQuery(request.query);
    if (session === undefined) return;
    const first = {
      session_id: session,
      ...(after !== undefined && { after }),
      ...(previews !== undefined && { previews }),
    };
    await subscriptions
      .start(principal, first)
      .catch((error: unknown) => refuseFrame(context, link, error, JSON.stringify({ session_id: session })));
  };
  const authenticate = async (frame: Inbound | BrokerError): Promise<void> => {
    if (phase.name === "unauthenticated") clearTimeout(phase.timer);
    phase = { name: "authenticating" };
    try {
      await open(await readAuth(context, request, frame));
    } catch (error) {
      const known = error instanceof BrokerError;
      if (!known) context.logger.error({ err: error }, "authentication failed");
      link.close(
        known ? error : new BrokerError("internal", "Authentication failed. Connect again.", { cause: error }),
      );
    }
  };
  const inbox: Inbox = createInbox(ws, {
    frames: INBOX_FRAMES,
    bytes: config.queryLimitBytes,
    async handle(frame) {
      // Nobody is answered faster than they read.
      if (!(await link.room())) return;
      if (phase.name !== "open") await authenticate(frame);
      else if (frame instanceof BrokerError) refuseFrame(context, link, frame);
      else await phase.frames.handle(frame);
    },
  });
  live.add({
    kind: "websocket",
    principal: () => (phase.name === "open" ? phase.principal : undefined),
    close: link.close,
    closed: link.closed,
  });
  link.closing.addEventListener("abort", () => {
    if (phase.name === "unauthenticated") clearTimeout(phase.timer);
    inbox.close();
  });
  if (request.principal !== null) void open(request.principal);
  else
    release = limitUnauthenticated(
      request,
      () => inbox,
      link,
      () => phase.name === "unauthenticated",
    );
}
