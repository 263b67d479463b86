import { once } from "node:events";
import { type IncomingMessage, request } from "node:http";
import type { Readable } from "node:stream";
import { describe, expect } from "vitest";
import { type Download, openDownload } from "../../src/transport/download.ts";
import { createBothVersions, HTTP_SERVER_DEFAULTS } from "../../src/transport/http-server.ts";
import { connectHttp2 } from "../kit/http2-client.ts";
import { verifies } from "../kit/verifies.ts";

const OPTIONS = { contentType: "application/x-ndjson", slowReaderMs: 200, inFlightBytes: 64 * 1024 };
const LINE = Buffer.alloc(32 * 1024, "x");

const VERSIONS = [
  { version: "HTTP/1.1", http2: false },
  { version: "HTTP/2", http2: true },
];

interface Answer {
  readonly headers: Readonly<Record<string, unknown>>;
  readonly body: Readable;
}

async function askHttp1(url: string): Promise<Answer> {
  const asked = request(url).end();
  const [response]: IncomingMessage[] = await once(asked, "response");
  if (response === undefined) throw new Error("no answer");
  return { headers: response.headers, body: response };
}

async function askHttp2(url: string): Promise<Answer> {
  const connection = await connectHttp2(url);
  const answer = await connection.ask("GET", "/");
  answer.body.once("close", () => connection[Symbol.dispose]());
  return answer;
}

/** A server whose every answer is a download, and a client that has the head of its first one. */
async function startDownload(http2: boolean) {
  const opened = Promise.withResolvers<Download>();
  const both = createBothVersions({ ...HTTP_SERVER_DEFAULTS, tls: undefined });
  const server = both.serve((_request, response) => {
    opened.resolve(openDownload(response, { "x-kept": "yes" }, OPTIONS));
  });
  await once(server.listen(0, "127.0.0.1"), "listening");
  const address = server.address();
  const port = typeof address === "object" && address !== null ? address.port : 0;
  const asked = (http2 ? askHttp2 : askHttp1)(`http://127.0.0.1:${port}/`);
  const download = await opened.promise;
  await download.write([LINE]);
  const { headers, body } = await asked;
  return {
    download,
    headers,
    body,
    [Symbol.asyncDispose]: async () => {
      body.destroy();
      server.close();
      both.cut();
      await once(server, "close");
    },
  };
}

async function bytesOf(body: Readable): Promise<number> {
  let count = 0;
  for await (const chunk of body) count += Buffer.from(chunk).length;
  return count;
}

describe.each(VERSIONS)("over $version", ({ http2 }) => {
  verifies("TRANSCRIPT", "a long answer is made no faster than it is read, and arrives whole", async () => {
    await using link = await startDownload(http2);
    const reading = bytesOf(link.body);
    for (let count = 1; count < 400; count++) expect(await link.download.write([LINE, LINE])).toBe(true);
    link.download.end();
    expect(await reading).toBe(LINE.length * 799);
    expect(link.headers).toMatchObject({ "content-type": OPTIONS.contentType, "x-kept": "yes" });
    await link.download.closed;
  });

  verifies(
    "P8-SLOW",
    "a long answer that is not read is given up, and its reader sees that it is not whole",
    async () => {
      await using link = await startDownload(http2);
      link.body.pause();
      let written = 0;
      while (await link.download.write([LINE])) written += 1;
      await link.download.closed;
      expect(written * LINE.length).toBeLessThan(32 * 1024 * 1024);
      await expect(bytesOf(link.body)).rejects.toMatchObject({ code: http2 ? "ERR_HTTP2_STREAM_ERROR" : "ECONNRESET" });
    },
  );
});
