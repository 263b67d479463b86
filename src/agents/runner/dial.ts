import { createWebSocketStream, WebSocket } from "ws";
import { RUNNER_SUBPROTOCOL } from "../../protocol/frames.ts";
import { isJsonObject, stringField } from "../../protocol/json.ts";
import { createStreamLink, type Link } from "./link.ts";

/** Where a runner dials in, and as whom. */
export interface DialTarget {
  /** `ws:` or `wss:`, with the runner's identity in its query; never a token. */
  readonly url: string;
  readonly token: string;
  /** A connection that is refused, for whatever reason, is cut off after this time, in milliseconds. */
  readonly handshakeMs?: number;
}

/** How a connection ended. `isFinal`: the broker said that coming back is of no use. */
export interface DialEnd {
  readonly isFinal: boolean;
  readonly why: string;
  /** How long it was open, in milliseconds; 0 when it never was. */
  readonly openMs: number;
}

const HANDSHAKE_MS = 15_000;
/** An answer to a refused upgrade is a few hundred bytes. */
const REFUSAL_LIMIT_BYTES = 16 * 1024;

/** One connection to the broker: `linked` gets its link. Resolves when it has ended. */
export async function dial(
  { url, token, handshakeMs = HANDSHAKE_MS }: DialTarget,
  linked: (link: Link) => void,
  signal: AbortSignal,
): Promise<DialEnd> {
  const socket = new WebSocket(url, [RUNNER_SUBPROTOCOL], {
    headers: { authorization: `Bearer ${token}` },
    handshakeTimeout: handshakeMs,
    perMessageDeflate: false,
    followRedirects: false,
  });
  const { promise, resolve } = Promise.withResolvers<DialEnd>();
  let openedAtMs: number | undefined;
  let why = "";
  const cut = (): void => socket.terminate();
  signal.addEventListener("abort", cut, { once: true });
  socket.on("error", (error) => {
    why ||= error.message;
  });
  socket.on("unexpected-response", (_request, response) => {
    void readRefusal(response).then((refusal) => {
      resolve({ ...refusal, openMs: 0 });
      socket.terminate();
    });
  });
  socket.on("open", () => {
    openedAtMs = performance.now();
    linked(createStreamLink(createWebSocketStream(socket)));
  });
  socket.on("close", (code, reason) => {
    const said = reason.toString("utf8");
    const openMs = openedAtMs === undefined ? 0 : performance.now() - openedAtMs;
    resolve({ isFinal: code >= 4500 && code < 5000, why: said || why || `the connection ended (${code})`, openMs });
  });
  try {
    return await promise;
  } finally {
    signal.removeEventListener("abort", cut);
  }
}

/** Only our own words are final: a proxy that answers 403 or 404 may do so because the server restarts. */
async function readRefusal(
  response: NodeJS.ReadableStream & { readonly statusCode?: number | undefined },
): Promise<{ isFinal: boolean; why: string }> {
  let text = "";
  try {
    for await (const chunk of response) {
      text += String(chunk);
      if (text.length > REFUSAL_LIMIT_BYTES) break;
    }
    const body: unknown = JSON.parse(text);
    const error = isJsonObject(body) ? body["error"] : undefined;
    const message = stringField(error, "message");
    const code = stringField(error, "code");
    if (isJsonObject(error) && message !== undefined && code !== undefined) {
      return { isFinal: error["retry"] === false, why: `${code}: ${message}` };
    }
  } catch {
    // Not ours: told by its status.
  }
  return { isFinal: false, why: `HTTP status ${response.statusCode ?? "unknown"}` };
}
