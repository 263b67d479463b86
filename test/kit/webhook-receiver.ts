import { createHmac } from "node:crypto";
import { once } from "node:events";
import http from "node:http";

/** A call as the receiver got it. */
export interface Received {
  readonly headers: http.IncomingHttpHeaders;
  readonly text: string;
  /** The body as JSON. Tests say what they expect of it, so it is not typed further. */
  // biome-ignore lint/suspicious/noExplicitAny: a test reads whatever shape it asserts
  readonly body: any;
  readonly eventId: string;
}

export type Reaction = (response: http.ServerResponse, received: Received) => void;

/** A webhook's receiver: a real HTTP server on loopback. */
export interface Receiver extends AsyncDisposable {
  readonly url: string;
  readonly port: number;
  readonly received: Received[];
  /** How it answers from now on. Default: 204. */
  react(reaction: Reaction): void;
  /** The first call, come already or yet to come, that fits. */
  first(fits: (received: Received) => boolean): Promise<Received>;
  /** Resolves when there have been this many. */
  count(calls: number): Promise<Received[]>;
  close(): Promise<void>;
}

export const answering =
  (status: number, headers: http.OutgoingHttpHeaders = {}): Reaction =>
  (response) =>
    response.writeHead(status, headers).end();

/** What the sender should have put into `patchbay-signature`. */
export const expectedSignature = (secret: string, { headers, text }: Received): string =>
  `v1=${createHmac("sha256", secret)
    .update(`${String(headers["patchbay-timestamp"])}.${text}`)
    .digest("hex")}`;

export async function startReceiver(reaction: Reaction = answering(204), port = 0): Promise<Receiver> {
  const received: Received[] = [];
  const waiting = new Set<() => void>();
  let react = reaction;
  const server = http.createServer((request, response) => {
    const chunks: Buffer[] = [];
    // A sender that goes away in the middle is a part of some tests.
    request.on("error", () => undefined);
    request.on("data", (chunk: Buffer) => chunks.push(chunk));
    request.on("end", () => {
      const text = Buffer.concat(chunks).toString("utf8");
      const eventId = String(request.headers["patchbay-event-id"]);
      const call = { headers: request.headers, text, body: JSON.parse(text), eventId };
      received.push(call);
      react(response, call);
      for (const wake of waiting) wake();
    });
  });
  server.listen(port, "127.0.0.1");
  await once(server, "listening");
  const address = server.address();
  const bound = typeof address === "object" && address !== null ? address.port : 0;
  async function until<T>(look: () => T | undefined): Promise<T> {
    for (;;) {
      const found = look();
      if (found !== undefined) return found;
      const { promise, resolve } = Promise.withResolvers<void>();
      waiting.add(resolve);
      await promise;
      waiting.delete(resolve);
    }
  }
  const close = async (): Promise<void> => {
    if (!server.listening) return;
    const closed = once(server, "close");
    server.close();
    server.closeAllConnections();
    await closed;
  };
  return {
    url: `http://127.0.0.1:${bound}/hook`,
    port: bound,
    received,
    react: (next) => {
      react = next;
    },
    first: (fits) => until(() => received.find(fits)),
    count: (calls) => until(() => (received.length >= calls ? received : undefined)),
    close,
    [Symbol.asyncDispose]: close,
  };
}
