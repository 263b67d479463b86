import { once } from "node:events";
import { createServer, type IncomingMessage, request, type ServerResponse } from "node:http";
import { expect } from "vitest";
import { type Download, openDownload } from "../../src/transport/download.ts";
import { verifies } from "../kit/verifies.ts";

const OPTIONS = { contentType: "application/x-ndjson", slowReaderMs: 200, inFlightBytes: 64 * 1024 };
const LINE = Buffer.alloc(32 * 1024, "x");

/** A server whose every answer is a download, and a client that has the head of its first one. */
async function startDownload() {
  const opened = Promise.withResolvers<Download>();
  const server = createServer((_request, response: ServerResponse) => {
    opened.resolve(openDownload(response, { "x-kept": "yes" }, OPTIONS));
  }).listen(0, "127.0.0.1");
  await once(server, "listening");
  const address = server.address();
  const port = typeof address === "object" && address !== null ? address.port : 0;
  const asked = request({ port, host: "127.0.0.1" }).end();
  const download = await opened.promise;
  await download.write([LINE]);
  const [response]: IncomingMessage[] = await once(asked, "response");
  if (response === undefined) throw new Error("no answer");
  return {
    download,
    response,
    [Symbol.asyncDispose]: async () => {
      asked.destroy();
      server.close();
      await once(server, "close");
    },
  };
}

async function bytesOf(response: IncomingMessage): Promise<number> {
  let count = 0;
  for await (const chunk of response) count += Buffer.from(chunk).length;
  return count;
}

verifies("TRANSCRIPT", "a long answer is made no faster than it is read, and arrives whole", async () => {
  await using link = await startDownload();
  const reading = bytesOf(link.response);
  for (let count = 1; count < 400; count++) expect(await link.download.write([LINE, LINE])).toBe(true);
  link.download.end();
  expect(await reading).toBe(LINE.length * 799);
  expect(link.response.headers).toMatchObject({ "content-type": OPTIONS.contentType, "x-kept": "yes" });
  await link.download.closed;
});

verifies(
  "P8-SLOW",
  "a long answer that is not read is given up, and its reader sees that it is not whole",
  async () => {
    await using link = await startDownload();
    link.response.pause();
    let written = 0;
    while (await link.download.write([LINE])) written += 1;
    await link.download.closed;
    expect(written * LINE.length).toBeLessThan(32 * 1024 * 1024);
    await expect(bytesOf(link.response)).rejects.toMatchObject({ code: "ECONNRESET" });
  },
);
