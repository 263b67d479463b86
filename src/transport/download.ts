import type { ServerResponse } from "node:http";
import { cutResponse } from "./cut-response.ts";
import { createOutlet } from "./outlet.ts";

export interface DownloadOptions {
  readonly contentType: string;
  readonly slowReaderMs: number;
  readonly inFlightBytes: number;
}

/** A long answer that is made while it is sent. */
export interface Download {
  /** Resolves when there is room for more; to false when nobody takes it any more. */
  write(chunks: readonly Uint8Array[]): Promise<boolean>;
  end(): void;
  /** Ends it so that its reader sees that it is not whole. */
  cut(): void;
  /** Aborts when it has ended or its client has gone. */
  readonly closing: AbortSignal;
  readonly closed: Promise<void>;
}

/** Takes over a response whose head is not sent yet. `headers` are those of the route (CORS). A reader that takes nothing is cut off. */
export function openDownload(
  response: ServerResponse,
  headers: Readonly<Record<string, string>>,
  options: DownloadOptions,
): Download {
  const closing = new AbortController();
  const { promise: closed, resolve: setClosed } = Promise.withResolvers<void>();
  response.writeHead(200, { ...headers, "content-type": options.contentType, "cache-control": "no-store" });
  const cut = (): void => cutResponse(response);
  const { inFlightBytes, slowReaderMs } = options;
  const outlet = createOutlet(response, { inFlightBytes, slowReaderMs, slow: cut });
  // A write that meets a vanished client is not news: `close` follows.
  response.on("error", () => {});
  response.once("close", () => {
    closing.abort();
    outlet.stop();
    setClosed();
  });
  return {
    write: (chunks) => outlet.data(chunks, closing.signal),
    end() {
      outlet.stop();
      response.end();
    },
    cut,
    closing: closing.signal,
    closed,
  };
}
