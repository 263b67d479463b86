import type { RawData, WebSocket } from "ws";
import { BrokerError } from "../../protocol/problems.ts";

/** A text frame as it came. */
export interface Inbound {
  readonly text: string;
  readonly bytes: number;
}

export interface InboxOptions {
  /** Frames and bytes that may wait; beyond, the socket is not read until some are handled. */
  readonly frames: number;
  readonly bytes: number;
  /** Called for one frame after the other, in order. A BrokerError stands for a frame that is no text. Must not throw. */
  readonly handle: (frame: Inbound | BrokerError) => Promise<void>;
}

/** The frames of one socket, from the first byte on, in order and bounded. */
export interface Inbox {
  waiting(): number;
  /** Stops reading the socket, whatever the queue's length, until released. */
  hold(held: boolean): void;
  /** Forgets what waits and takes nothing more. */
  close(): void;
}

function bufferOf(data: RawData): Buffer {
  if (Buffer.isBuffer(data)) return data;
  return Array.isArray(data) ? Buffer.concat(data) : Buffer.from(data);
}

/** Listens at once: a frame that is pipelined behind the upgrade is already on its way (known-bug 17). */
export function createInbox(ws: WebSocket, options: InboxOptions): Inbox {
  const queue: (Inbound | BrokerError)[] = [];
  let bytes = 0;
  let held = false;
  let running = false;
  let closed = false;

  const regulate = (): void => {
    const full = held || queue.length >= options.frames || bytes >= options.bytes;
    if (full && !ws.isPaused) ws.pause();
    else if (!full && ws.isPaused) ws.resume();
  };
  const run = async (): Promise<void> => {
    if (running) return;
    running = true;
    for (let frame = queue.shift(); frame !== undefined && !closed; frame = queue.shift()) {
      if (!(frame instanceof BrokerError)) bytes -= frame.bytes;
      await options.handle(frame);
      regulate();
    }
    running = false;
  };
  ws.on("message", (data, isBinary) => {
    if (closed) return;
    if (isBinary) {
      queue.push(new BrokerError("bad_request", "Binary frames are not understood. Send JSON in text frames."));
    } else {
      const payload = bufferOf(data);
      queue.push({ text: payload.toString(), bytes: payload.length });
      bytes += payload.length;
    }
    regulate();
    void run();
  });
  return {
    waiting: () => queue.length,
    hold(next) {
      held = next;
      regulate();
    },
    close() {
      closed = true;
      queue.length = 0;
      if (ws.isPaused) ws.resume();
    },
  };
}
