import type { Socket } from "node:net";

/** What HTTP/2 with prior knowledge begins with (RFC 9113 3.4). No method of HTTP/1.1 starts so: the word is reserved. */
const PREFACE_START = Buffer.from("PRI");

/** Undefined while it cannot be known yet. */
function speaksHttp2(bytes: Buffer): boolean | undefined {
  const seen = Math.min(bytes.length, PREFACE_START.length);
  if (!bytes.subarray(0, seen).equals(PREFACE_START.subarray(0, seen))) return false;
  return seen === PREFACE_START.length ? true : undefined;
}

/**
 * Waits for the first bytes of a fresh connection and says by them which HTTP it speaks; they stay readable. A connection that ends, fails,
 * or does not say it within so many milliseconds, is destroyed and never reported.
 */
export function peekVersion(socket: Socket, withinMs: number, decided: (http2: boolean) => void): void {
  let bytes = Buffer.alloc(0);
  const drop = (): void => void socket.destroy();
  const timer = setTimeout(drop, withinMs).unref();
  const leave = (): void => {
    clearTimeout(timer);
    socket.off("readable", look).off("end", drop).off("error", drop).off("close", leave);
  };
  const look = (): void => {
    const chunk: Buffer | null = socket.read();
    if (chunk === null) return;
    bytes = Buffer.concat([bytes, chunk]);
    const http2 = speaksHttp2(bytes);
    if (http2 === undefined) return;
    leave();
    socket.unshift(bytes);
    decided(http2);
  };
  socket.on("readable", look).on("end", drop).on("error", drop).on("close", leave);
}
