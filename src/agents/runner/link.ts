import type { Duplex } from "node:stream";
import { createFrameDecoder, FRAME_BODY_LIMIT_BYTES, type Frame, frameHead } from "./frames.ts";

/** What is to be sent. `count` comes before the body, as 48 bits. */
export interface OutgoingFrame {
  readonly kind: Frame["kind"];
  readonly channel: number;
  readonly more?: boolean;
  readonly count?: number;
  readonly body?: Uint8Array;
}

export interface LinkHandlers {
  /** What it throws ends the link, as bytes that are no frame do: a FrameFault is the peer's, anything else is ours. */
  frame(frame: Frame): void;
  /** What waited has gone out. */
  drained(): void;
  /** Once. `fault` says what was wrong with a frame, or with how it was handled, if anything was. */
  closed(fault: Error | undefined): void;
}

/** A carrier of frames, in order and whole, or closed. Every carrier is a byte stream underneath: socket, pair in memory, WebSocket. */
export interface Link {
  /** Frames of one tick go out together. After the close it does nothing. */
  send(frame: OutgoingFrame): void;
  /** More is waiting than should; `drained` follows. Small frames may be sent all the same. */
  isCongested(): boolean;
  /** Resolves when it is not congested, or is closed. */
  ready(): Promise<void>;
  /** Begins to deliver. Called once. */
  open(handlers: LinkHandlers): void;
  /** Sends what waits, then closes; a peer that does not take it is cut off. */
  close(): void;
  /** Closes at once. */
  destroy(): void;
}

const CONGESTED_BYTES = 4 * 1024 * 1024;
/** Bodies up to this size are copied behind their header: one piece costs less than two. */
const COPIED_BYTES = 2048;
const CLOSE_PATIENCE_MS = 2000;

/**
 * How often each side says that it is there. A link on which nothing came for two of these is destroyed: what is between the two (a NAT that
 * forgot, a cable) tells nobody that it is gone, and what is idle for a minute is cut by many a proxy.
 */
const HEARTBEAT_MS = 15_000;
const SILENT_HEARTBEATS = 2;

/** Frames over any Duplex of Node: a net.Socket, one end of duplexPair(), a WebSocket's stream. */
export function createStreamLink(stream: Duplex, heartbeatMs = HEARTBEAT_MS): Link {
  let isCorked = false;
  let fault: Error | undefined;
  let silentHeartbeats = 0;

  function flush(): void {
    isCorked = false;
    stream.uncork();
  }

  function send({ kind, channel, more = false, count, body }: OutgoingFrame): void {
    if (!stream.writable) return;
    if (!isCorked) {
      isCorked = true;
      stream.cork();
      setImmediate(flush);
    }
    const bytes = (body?.length ?? 0) + (count === undefined ? 0 : 6);
    if (bytes > FRAME_BODY_LIMIT_BYTES) throw new RangeError("a frame's body is over its limit");
    const head = frameHead({ kind, channel, more }, bytes, count);
    if (body === undefined) stream.write(head);
    else if (body.length <= COPIED_BYTES) stream.write(Buffer.concat([head, body]));
    else {
      stream.write(head);
      stream.write(body);
    }
  }

  /** Counted, not measured: after a pause of this process itself what waits in the stream comes before the next beat. */
  function startHeartbeat(): NodeJS.Timeout {
    return setInterval(() => {
      if (silentHeartbeats >= SILENT_HEARTBEATS) stream.destroy();
      else send({ kind: "ping", channel: 0 });
      silentHeartbeats += 1;
    }, heartbeatMs).unref();
  }

  function open(handlers: LinkHandlers): void {
    const decoder = createFrameDecoder((frame) => {
      if (frame.kind !== "ping") handlers.frame(frame);
    });
    // No peer may end this process: whatever goes wrong in a handler costs its link.
    const guarded = (step: () => void): void => {
      if (fault !== undefined) return;
      try {
        step();
      } catch (error) {
        fault = error instanceof Error ? error : new Error(String(error));
        stream.destroy();
      }
    };
    stream.on("data", (chunk: Buffer) => {
      silentHeartbeats = 0;
      guarded(() => decoder.push(chunk));
    });
    const heartbeat = startHeartbeat();
    stream.on("drain", () => guarded(handlers.drained));
    // The peer has gone; what we still had to say has no reader.
    stream.on("end", () => stream.destroy());
    let isOver = false;
    const over = (): void => {
      if (isOver) return;
      isOver = true;
      clearInterval(heartbeat);
      handlers.closed(fault);
    };
    stream.once("close", over);
    if (stream.destroyed) over();
  }

  // An error is an end like any other; `close` follows it.
  stream.on("error", () => {});
  return {
    open,
    send,
    isCongested: () => stream.writableLength > CONGESTED_BYTES,
    ready: () => whenDrained(stream),
    close() {
      if (stream.destroyed) return;
      stream.end();
      const timer = setTimeout(() => stream.destroy(), CLOSE_PATIENCE_MS).unref();
      stream.once("close", () => clearTimeout(timer));
      stream.once("finish", () => stream.destroy());
    },
    destroy: () => void stream.destroy(),
  };
}

async function whenDrained(stream: Duplex): Promise<void> {
  if (stream.writableLength <= CONGESTED_BYTES || stream.destroyed) return;
  const { promise, resolve } = Promise.withResolvers<void>();
  stream.once("drain", resolve);
  stream.once("close", resolve);
  await promise;
  stream.off("drain", resolve);
  stream.off("close", resolve);
}
