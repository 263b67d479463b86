import type { Duplex } from "node:stream";
import type { WebSocket } from "ws";
import type { ServerFrame } from "../protocol/frames.ts";
import { sessionId as brandSessionId } from "../protocol/ids.ts";
import { BrokerError, PROBLEMS, problemBody } from "../protocol/problems.ts";
import { eventFrame, textFrame } from "./frame.ts";
import { startHeartbeat } from "./heartbeat.ts";
import { createOutlet, type Outlet } from "./outlet.ts";
import { createSlicer, type Sink } from "./pump.ts";

export interface LinkOptions {
  /** The server pings this often; two silent periods end the socket. */
  readonly heartbeatMs: number;
  /** A socket that takes nothing for this long is told so and closed. */
  readonly slowReaderMs: number;
  /** Bytes that may wait in the socket, over all its subscriptions. */
  readonly inFlightBytes: number;
  /** How long a closing handshake may take before the socket is cut. */
  readonly closeMs: number;
}

export const LINK_DEFAULTS: LinkOptions = Object.freeze({
  heartbeatMs: 15_000,
  slowReaderMs: 30_000,
  inFlightBytes: 256 * 1024,
  closeMs: 5_000,
});

/** One client's WebSocket, as the server speaks to it. */
export interface Link {
  /** Sends a small frame at once: an answer, a notice. */
  send(frame: ServerFrame): void;
  /** Where one subscription's events go, until its signal aborts. Events and notices of one sink keep their order. */
  sink(sessionId: string, signal: AbortSignal): Sink & { notice(frame: ServerFrame): Promise<boolean> };
  /** Resolves when the socket has room again: nobody is answered faster than they read. False when it has closed. */
  room(): Promise<boolean>;
  /** Says why in an error frame, then closes with the problem's code. Later calls do nothing: the first reason wins. */
  close(problem: BrokerError): void;
  /** Aborts when the socket has closed or is closing. */
  readonly closing: AbortSignal;
  readonly closed: Promise<void>;
}

const framesOf = createSlicer(eventFrame);

function sinkOf(outlet: Outlet, sessionId: string, signal: AbortSignal): ReturnType<Link["sink"]> {
  const notice = (frame: ServerFrame): Promise<boolean> => outlet.data([textFrame(JSON.stringify(frame))], signal);
  return {
    async events(events) {
      for (const slice of framesOf(events)) {
        if (!(await outlet.data(slice, signal))) return;
      }
    },
    gap: (firstAvailable) =>
      notice({ type: "gap", session_id: brandSessionId(sessionId), first_available: firstAvailable }),
    notice,
  };
}

/**
 * Takes over an accepted socket. Events and JSON frames are written to `socket` itself, whole frames at a time; `ws` reads, and writes
 * control frames, which it does synchronously as long as nothing is compressed, so the two never meet inside a frame.
 */
export function openLink(ws: WebSocket, socket: Duplex, options: LinkOptions): Link {
  const closing = new AbortController();
  const { promise: closed, resolve: setClosed } = Promise.withResolvers<void>();
  const open = (): boolean => ws.readyState === ws.OPEN;
  const outlet = createOutlet(socket, {
    inFlightBytes: options.inFlightBytes,
    slowReaderMs: options.slowReaderMs,
    slow: () => close(new BrokerError("slow_reader", "You read too slowly. Come back with the last seq you have.")),
    progress: () => heartbeat.heard(),
  });
  const heartbeat = startHeartbeat({
    periodMs: options.heartbeatMs,
    ping: () => outlet.control(() => open() && ws.ping()),
    lost: () => close(new BrokerError("heartbeat_lost", "Nothing was heard for two heartbeats. Connect again.")),
  });
  const write = (frame: ServerFrame): void => {
    if (open()) socket.write(textFrame(JSON.stringify(frame)));
  };
  const shut = (): void => {
    closing.abort();
    heartbeat.stop();
    outlet.stop();
  };
  const close = (problem: BrokerError): void => {
    if (closing.signal.aborted) return;
    shut();
    if (open()) {
      write({ type: "error", ...problemBody(problem) });
      ws.close(PROBLEMS[problem.code].close, problem.code);
    }
    // A reader that is slow or gone will not finish the handshake.
    const cut = setTimeout(() => ws.terminate(), options.closeMs).unref();
    ws.once("close", () => clearTimeout(cut));
  };
  let pongWaits = false;
  ws.on("ping", (data: Buffer) => {
    heartbeat.heard();
    // One answer at a time: a client that pings without reading must not fill memory (RFC 6455 5.5.3 allows answering the latest only).
    if (pongWaits) return;
    pongWaits = true;
    outlet.data([]).then((room) => {
      pongWaits = false;
      if (room && open()) ws.pong(data);
    }, shut);
  });
  ws.on("pong", heartbeat.heard);
  ws.on("message", heartbeat.heard);
  ws.once("close", () => {
    shut();
    setClosed();
  });
  return {
    send: (frame) => outlet.control(() => write(frame)),
    sink: (sessionId, signal) => sinkOf(outlet, sessionId, signal),
    room: () => outlet.data([]),
    close,
    closing: closing.signal,
    closed,
  };
}
