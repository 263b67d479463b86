import { createServer, type IncomingMessage, type RequestListener, type Server } from "node:http";
import { createServer as createHttp2Server, type Http2Server } from "node:http2";
import { createServer as createTlsServer } from "node:https";
import type { Socket } from "node:net";
import { TLSSocket } from "node:tls";
import { peekVersion } from "./first-bytes.ts";
import { createHttp2Sessions } from "./http2-sessions.ts";

export interface HttpServerOptions {
  /** PEM texts; undefined = plain. */
  readonly tls: { readonly cert: string; readonly key: string } | undefined;
  /** A request must have come in whole within this time. In milliseconds. */
  readonly requestTimeoutMs: number;
  /** An HTTP/1.1 connection between two requests, and an HTTP/2 connection before its first one, is kept for this long. */
  readonly keepAliveMs: number;
  /** A connection must have said by this time which HTTP it speaks: its first three bytes, or its TLS handshake. */
  readonly firstBytesMs: number;
  /** An HTTP/2 connection on which nothing is open and nothing moves is closed after this time. */
  readonly sessionIdleMs: number;
  /** Requests and streams that may be open at once on one HTTP/2 connection. */
  readonly streamsPerSession: number;
}

export const HTTP_SERVER_DEFAULTS: Omit<HttpServerOptions, "tls"> = Object.freeze({
  requestTimeoutMs: 300_000,
  keepAliveMs: 72_000,
  firstBytesMs: 20_000,
  sessionIdleMs: 10 * 60_000,
  streamsPerSession: 128,
});

/** A server that speaks HTTP/1.1 (with upgrades) and HTTP/2 on one port. */
export interface BothVersions {
  /** Gives all requests to `handler`, those of HTTP/2 in Node's compatible form. Returns what listens. */
  serve(handler: RequestListener): Server;
  /** Tells HTTP/2 clients to send no more on their connections (GOAWAY); what is under way goes on. Later connections are told after their first request. */
  retire(): void;
  /** Cuts all that is not an upgraded socket. */
  cut(): void;
}

const peerOf = ({ remoteAddress, remotePort }: Socket): string => `${remoteAddress}:${remotePort}`;

/** Connections of which nobody knows yet what they speak: Node's own lists leave them out. */
function createUndecided() {
  const sockets = new Map<string, Socket>();
  return {
    add(socket: Socket): void {
      const peer = peerOf(socket);
      sockets.set(peer, socket);
      socket.once("close", () => sockets.get(peer) === socket && sockets.delete(peer));
    },
    settle: (socket: Socket) => void sockets.delete(peerOf(socket)),
    cut(): void {
      for (const socket of sockets.values()) socket.destroy();
    },
  };
}

/** Takes the connections of `event` from the server and gives each to one of two. */
function intercept(server: Server, event: "connection" | "secureConnection", divert: (socket: Socket) => void) {
  const ours = server.listeners(event);
  server.removeAllListeners(event);
  server.on(event, divert);
  return (socket: Socket): void => {
    for (const listener of ours) Reflect.apply(listener, server, [socket]);
  };
}

function createHttp1(options: HttpServerOptions): Server {
  const { tls, requestTimeoutMs, keepAliveMs, firstBytesMs } = options;
  const common = {
    requestTimeout: requestTimeoutMs,
    keepAliveTimeout: keepAliveMs,
    // Java's client, and curl when told so, offer `Upgrade: h2c` with every first request: it is declined by answering in HTTP/1.1.
    shouldUpgradeCallback: ({ headers }: IncomingMessage): boolean => headers.upgrade?.toLowerCase() === "websocket",
  };
  if (tls === undefined) return createServer(common);
  return createTlsServer({ ...common, ...tls, ALPNProtocols: ["h2", "http/1.1"], handshakeTimeout: firstBytesMs });
}

function createHttp2({ streamsPerSession }: HttpServerOptions): Http2Server {
  return createHttp2Server({
    settings: { maxConcurrentStreams: streamsPerSession, initialWindowSize: 1024 * 1024 },
    // In megabytes. A session may hold one waiting slice for each of its streams, and Node refuses new streams beyond this.
    maxSessionMemory: 64,
  });
}

/** Not yet listening. Which HTTP a connection speaks is seen from its first bytes, or with TLS agreed on by ALPN. */
export function createBothVersions(options: HttpServerOptions): BothVersions {
  const server = createHttp1(options);
  const http2 = createHttp2(options);
  const sessions = createHttp2Sessions(http2, {
    unusedMs: options.keepAliveMs,
    idleMs: options.sessionIdleMs,
    requestTimeoutMs: options.requestTimeoutMs,
  });
  const undecided = createUndecided();
  const toHttp2 = (socket: Socket): void => {
    // A server of HTTP/1.1 lets its clients end their half first; here a client that has ended has gone, and its session would never know.
    socket.allowHalfOpen = false;
    http2.emit("connection", socket);
  };
  if (options.tls === undefined) {
    const toHttp1 = intercept(server, "connection", (socket) => {
      undecided.add(socket);
      peekVersion(socket, options.firstBytesMs, (isHttp2) => {
        undecided.settle(socket);
        if (isHttp2) toHttp2(socket);
        else toHttp1(socket);
      });
    });
  } else {
    server.on("connection", undecided.add);
    const toHttp1 = intercept(server, "secureConnection", (socket) => {
      undecided.settle(socket);
      if (socket instanceof TLSSocket && socket.alpnProtocol === "h2") toHttp2(socket);
      else toHttp1(socket);
    });
  }
  return {
    serve(handler) {
      http2.on("request", handler);
      return server.on("request", handler);
    },
    retire: sessions.retire,
    cut() {
      server.closeAllConnections();
      sessions.cut();
      undecided.cut();
    },
  };
}

/** The name by which the client calls us: `:authority` of HTTP/2, `Host` of HTTP/1.1. Undefined when there is none, or two that differ. */
export function authorityOf({ headers }: Pick<IncomingMessage, "headers">): string | undefined {
  const authority = headers[":authority"];
  if (authority === undefined) return headers.host;
  if (typeof authority !== "string" || (headers.host !== undefined && headers.host !== authority)) return undefined;
  return authority;
}
