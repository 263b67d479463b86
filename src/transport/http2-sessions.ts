import { constants, type Http2Server, type ServerHttp2Session, type ServerHttp2Stream } from "node:http2";

export interface SessionTimes {
  /** A connection that never made a request, and one that made some: closed when nothing moves on it for so long. In milliseconds. */
  readonly unusedMs: number;
  readonly idleMs: number;
  /** A request must have come in whole within this time. */
  readonly requestTimeoutMs: number;
}

/** Node bounds the time of a request in HTTP/1.1 only. */
function boundRequest(stream: ServerHttp2Stream, withinMs: number): void {
  if (stream.endAfterHeaders) return;
  const timer = setTimeout(() => stream.close(constants.NGHTTP2_CANCEL), withinMs).unref();
  const done = (): void => clearTimeout(timer);
  stream.once("end", done).once("close", done);
}

/** The HTTP/2 connections of a server that itself does not listen: nothing else would close them. */
export function createHttp2Sessions(server: Http2Server, times: SessionTimes): { retire(): void; cut(): void } {
  const sessions = new Set<ServerHttp2Session>();
  let retired = false;
  let gone = false;
  server.on("session", (session) => {
    if (gone) return void session.destroy();
    let open = 0;
    sessions.add(session);
    session.once("close", () => sessions.delete(session));
    session.on("stream", (stream) => {
      open += 1;
      boundRequest(stream, times.requestTimeoutMs);
      stream.once("close", () => {
        open -= 1;
        if (session.closed || open > 0) return;
        if (retired) session.close();
        // Set anew: once it has run out beside an open stream, a reset of that stream does not wind it up again.
        else session.setTimeout(times.idleMs);
      });
    });
    session.setTimeout(times.unusedMs);
    session.on("timeout", () => {
      if (open === 0) session.close();
    });
  });
  return {
    retire() {
      retired = true;
      for (const session of sessions) session.close();
    },
    cut() {
      gone = true;
      for (const session of sessions) session.destroy();
    },
  };
}
