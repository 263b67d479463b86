import type { Http2Server, ServerHttp2Session } from "node:http2";

/** The HTTP/2 connections of a server that itself does not listen: nothing else would close them. */
export function createHttp2Sessions(server: Http2Server, idleMs: number): { retire(): void; cut(): void } {
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
      stream.once("close", () => {
        open -= 1;
        if (session.closed || open > 0) return;
        if (retired) session.close();
        // Set anew: once it has run out beside an open stream, a reset of that stream does not wind it up again.
        else session.setTimeout(idleMs);
      });
    });
    session.setTimeout(idleMs);
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
