import { createServer, type IncomingMessage } from "node:http";
import type { AddressInfo } from "node:net";
import { type WebSocket, WebSocketServer } from "ws";
import { isJsonObject, type JsonObject } from "../../src/protocol/json.ts";

/** One socket of a client, as the test plays the server. */
export interface WireConnection {
  readonly url: string;
  /** The next frame of the client, pings left out. */
  next(): Promise<JsonObject>;
  /** The next ping. */
  ping(): Promise<void>;
  send(frame: unknown): void;
  close(code: number, reason?: string): void;
  /** Cuts the line without a word. */
  cut(): void;
  readonly closed: Promise<void>;
}

/** A WebSocket and HTTP server that says only what the test makes it say: a script of the wire, not of our code. */
export interface WireServer extends AsyncDisposable {
  readonly url: string;
  /** The next socket that a client opens. */
  connection(): Promise<WireConnection>;
  /** The next socket, authenticated by first frame and welcomed. */
  welcomed(heartbeatMs?: number): Promise<WireConnection>;
  /** Answers of plain HTTP calls. */
  answer(handler: (method: string, path: string) => { status: number; body: unknown } | undefined): void;
  readonly calls: { readonly method: string; readonly path: string; readonly headers: IncomingMessage["headers"] }[];
}

/** Values that are put in before or after somebody asks for them. */
function createQueue<T>() {
  const values: T[] = [];
  const waiting: ((value: T) => void)[] = [];
  return {
    put(value: T) {
      const taker = waiting.shift();
      if (taker === undefined) values.push(value);
      else taker(value);
    },
    take(): Promise<T> {
      const value = values.shift();
      return value === undefined ? new Promise((resolve) => waiting.push(resolve)) : Promise.resolve(value);
    },
  };
}

function play(socket: WebSocket, url: string): WireConnection {
  const frames = createQueue<JsonObject>();
  const pings = createQueue<true>();
  socket.on("message", (data) => {
    const frame: unknown = JSON.parse(data.toString());
    if (!isJsonObject(frame)) throw new Error("not an object");
    if (frame["type"] === "ping") pings.put(true);
    else frames.put(frame);
  });
  return {
    url,
    next: frames.take,
    ping: async () => void (await pings.take()),
    send: (frame) => socket.send(JSON.stringify(frame)),
    close: (code, reason) => socket.close(code, reason),
    cut: () => socket.terminate(),
    closed: new Promise((resolve) => socket.once("close", () => resolve())),
  };
}

/** Starts on a free port of loopback. */
export async function startWireServer(): Promise<WireServer> {
  const connections = createQueue<WireConnection>();
  const calls: { method: string; path: string; headers: IncomingMessage["headers"] }[] = [];
  let answer: Parameters<WireServer["answer"]>[0] = () => undefined;
  const http = createServer((request, response) => {
    const { method = "", url = "", headers } = request;
    calls.push({ method, path: url, headers });
    const { status, body } = answer(method, url) ?? {
      status: 404,
      body: { error: { code: "not_found", message: "no", retry: false } },
    };
    request
      .resume()
      .on("end", () => response.writeHead(status, { "content-type": "application/json" }).end(JSON.stringify(body)));
  });
  const sockets = new WebSocketServer({ server: http, handleProtocols: () => "patchbay.v1" });
  sockets.on("connection", (socket, request) => connections.put(play(socket, request.url ?? "")));
  await new Promise<void>((resolve) => http.listen(0, "127.0.0.1", resolve));
  const { port } = http.address() as AddressInfo;
  return {
    url: `http://127.0.0.1:${port}`,
    connection: connections.take,
    async welcomed(heartbeatMs = 60_000) {
      const connection = await connections.take();
      const auth = await connection.next();
      if (auth["type"] !== "auth") throw new Error(`expected auth, not ${JSON.stringify(auth)}`);
      connection.send(welcome(heartbeatMs));
      return connection;
    },
    answer(handler) {
      answer = handler;
    },
    calls,
    async [Symbol.asyncDispose]() {
      for (const socket of sockets.clients) socket.terminate();
      sockets.close();
      http.closeAllConnections();
      await new Promise((resolve) => http.close(resolve));
    },
  };
}

export const welcome = (heartbeatMs = 60_000) => ({
  type: "welcome",
  protocol: "patchbay.v1",
  connection_id: "c1",
  principal: { id: "k1", tenant: "default", roles: ["driver", "approver"] },
  heartbeat_ms: heartbeatMs,
});

export const subscribed = (session: string, head: number, open: unknown[] = []) => ({
  type: "subscribed",
  session_id: session,
  head,
  state: "running",
  open_requests: open,
});

/** An event frame; `head` may set what differs from an agent's durable line. */
export const event = (session: string, seq: number, type: string, payload: unknown, head: JsonObject = {}) => ({
  type: "event",
  session_id: session,
  seq,
  event_type: type,
  origin: type.includes(".") ? "SYSTEM_EVENT" : "AGENT_EVENT",
  source: "agent",
  timestamp_ms: 1,
  ...head,
  payload,
});
