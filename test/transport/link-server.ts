import type { Server } from "node:http";
import { WebSocketServer } from "ws";
import { createLogs } from "../../src/log/logs.ts";
import type { EventLog, LogEvent } from "../../src/log/port.ts";
import { seq } from "../../src/protocol/ids.ts";
import { openMemoryStore } from "../../src/store/memory.ts";
import { createBothVersions, HTTP_SERVER_DEFAULTS } from "../../src/transport/http-server.ts";
import { pump, type Sink } from "../../src/transport/pump.ts";
import { type EventStream, openStream, STREAM_DEFAULTS, type StreamOptions } from "../../src/transport/sse.ts";
import { LINK_DEFAULTS, type Link, type LinkOptions, openLink } from "../../src/transport/websocket.ts";
import { type EventShape, insertSession, newEvent } from "../kit/log-events.ts";

/** The transports over real logs and real sockets, without sessions or routes. */
export interface LinkServer extends AsyncDisposable {
  readonly url: string;
  readonly port: number;
  readonly log: EventLog;
  /** A second log, for sockets that follow two. */
  readonly other: EventLog;
  /** Appends so many events of a shape to a log, numbered on. Resolves when they are shown. */
  append(log: EventLog, count: number, shape?: EventShape): Promise<void>;
  readonly links: Link[];
  readonly streams: EventStream[];
}

export interface LinkServerOptions {
  readonly link?: Partial<LinkOptions>;
  readonly stream?: Partial<StreamOptions>;
  /** Follow both logs on each socket. */
  readonly both?: boolean;
  readonly previews?: boolean;
  readonly restricted?: boolean;
  readonly ended?: () => boolean;
  readonly wrap?: (sink: Sink) => Sink;
}

export const ONE = "one";
export const TWO = "two";

function onSocket(
  server: Server,
  options: LinkServerOptions,
  logs: readonly (readonly [string, EventLog])[],
  links: Link[],
): void {
  const sockets = new WebSocketServer({ noServer: true, autoPong: false, perMessageDeflate: false });
  server.on("upgrade", (request, socket, head) => {
    sockets.handleUpgrade(request, socket, head, (ws) => {
      ws.on("error", () => {});
      const link = openLink(ws, socket, { ...LINK_DEFAULTS, ...options.link });
      links.push(link);
      for (const [id, log] of logs) {
        const sink = link.sink(id, link.closing);
        const wanted = {
          after: seq(0),
          previews: options.previews ?? true,
          restricted: options.restricted ?? true,
          ended: options.ended ?? (() => false),
        };
        void pump(log, options.wrap?.(sink) ?? sink, wanted, link.closing);
      }
    });
  });
}

export async function startLinkServer(options: LinkServerOptions = {}): Promise<LinkServer> {
  const store = openMemoryStore();
  for (const id of [ONE, TWO]) await insertSession(store, id);
  const logs = createLogs(store);
  const { log } = await logs.open(ONE);
  const { log: other } = await logs.open(TWO);
  const links: Link[] = [];
  const streams: EventStream[] = [];
  const both = createBothVersions({ ...HTTP_SERVER_DEFAULTS, tls: undefined });
  const server = both.serve((_request, response) => {
    const stream = openStream(response, {}, { ...STREAM_DEFAULTS, ...options.stream });
    streams.push(stream);
    void pump(
      log,
      stream.sink,
      { after: seq(0), previews: true, restricted: true, ended: () => false },
      stream.closing,
    );
  });
  onSocket(
    server,
    options,
    options.both
      ? [
          [ONE, log],
          [TWO, other],
        ]
      : [[ONE, log]],
    links,
  );
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const address = server.address();
  if (address === null || typeof address === "string") throw new Error("no port");
  // Previews are kept for slow moments only while a turn runs.
  for (const one of [log, other]) await one.append([], [], "begin");
  const last = new Map<EventLog, number>();
  return {
    url: `http://127.0.0.1:${address.port}`,
    port: address.port,
    log,
    other,
    links,
    streams,
    async append(to, count, shape = {}) {
      const first = (last.get(to) ?? 0) + 1;
      last.set(to, first + count - 1);
      const id = to === log ? ONE : TWO;
      await to.append(Array.from({ length: count }, (_, index) => newEvent(id, first + index, shape)));
    },
    async [Symbol.asyncDispose]() {
      both.cut();
      for (const stream of streams) stream.end();
      await logs.close(ONE);
      await logs.close(TWO);
      server.close();
      await store.close();
    },
  };
}

/** An event that no log made, for encoders. */
export function looseEvent(envelope: string, number = 1): LogEvent {
  return {
    seq: seq(number),
    eventType: "assistant",
    preview: false,
    restricted: false,
    envelope: Buffer.from(envelope),
    encoded: {},
  };
}
