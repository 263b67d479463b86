import { once } from "node:events";
import { type ClientHttp2Session, type ClientHttp2Stream, connect, constants } from "node:http2";
import type { Readable } from "node:stream";

/** An answer over HTTP/2 whose body has not been read. */
export interface Http2Answer {
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: ClientHttp2Stream;
}

/** One HTTP/2 connection of a client: with prior knowledge on http:, by ALPN on https:. */
export interface Http2Connection extends Disposable {
  readonly session: ClientHttp2Session;
  ask(method: string, path: string, headers?: Readonly<Record<string, string>>, body?: string): Promise<Http2Answer>;
  /** The same, with the whole body as text. */
  text(
    method: string,
    path: string,
    headers?: Readonly<Record<string, string>>,
    body?: string,
  ): Promise<{ readonly status: number; readonly headers: Http2Answer["headers"]; readonly text: string }>;
}

export async function textOf(body: Readable): Promise<string> {
  const chunks: Buffer[] = [];
  for await (const chunk of body) chunks.push(Buffer.from(chunk));
  return Buffer.concat(chunks).toString();
}

/** Connects to the origin of `url`. `ca` = the certificate to trust, for https:. */
export async function connectHttp2(url: string, ca?: string): Promise<Http2Connection> {
  const session = connect(new URL(url).origin, ca === undefined ? {} : { ca });
  session.on("error", () => {});
  await once(session, "connect");
  const ask: Http2Connection["ask"] = async (method, path, headers = {}, body = undefined) => {
    const stream = session.request({ ":method": method, ":path": path, ...headers }, { endStream: body === undefined });
    if (body !== undefined) stream.end(body);
    const [received] = await once(stream, "response");
    // What befalls a stream later is seen by whoever reads it.
    stream.on("error", () => {});
    const plain = Object.entries(received).map(([name, value]) => [name, String(value)]);
    return {
      status: Number(received[constants.HTTP2_HEADER_STATUS]),
      headers: Object.fromEntries(plain),
      body: stream,
    };
  };
  return {
    session,
    ask,
    async text(...request) {
      const { body, ...head } = await ask(...request);
      return { ...head, text: await textOf(body) };
    },
    [Symbol.dispose]: () => session.destroy(),
  };
}
