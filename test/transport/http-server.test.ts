import { once } from "node:events";
import { request } from "node:http";
import { constants } from "node:http2";
import { request as requestTls } from "node:https";
import { type AddressInfo, connect, type Socket } from "node:net";
import { connect as connectTls } from "node:tls";
import { expect, test } from "vitest";
import { createBothVersions, HTTP_SERVER_DEFAULTS, type HttpServerOptions } from "../../src/transport/http-server.ts";
import { connectHttp2, textOf } from "../kit/http2-client.ts";
import { TEST_CERTIFICATE, TEST_CERTIFICATE_KEY } from "../kit/tls.ts";

const TLS = { cert: TEST_CERTIFICATE, key: TEST_CERTIFICATE_KEY };

const SWITCHING = "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n";

/** Answers every request with its version and method; a path of /open is left open. */
async function startBoth(options: Partial<HttpServerOptions> = {}) {
  const both = createBothVersions({ ...HTTP_SERVER_DEFAULTS, tls: undefined, ...options });
  const seen: string[] = [];
  const server = both.serve((incoming, response) => {
    seen.push(`${incoming.httpVersion} ${incoming.method}`);
    response.writeHead(200, { "content-type": "text/plain" });
    if (incoming.url === "/open") response.write("so far");
    else response.end(`${incoming.httpVersion} ${incoming.method}`);
  });
  server.on("upgrade", (_request, socket) => socket.resume().end(SWITCHING));
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  return {
    ...both,
    server,
    port,
    seen,
    url: `${options.tls === undefined ? "http" : "https"}://127.0.0.1:${port}`,
    async [Symbol.asyncDispose]() {
      const closed = once(server, "close");
      server.close();
      both.cut();
      await closed;
    },
  };
}

async function dial(port: number): Promise<Socket> {
  const socket = connect(port, "127.0.0.1");
  socket.on("error", () => {});
  await once(socket, "connect");
  return socket;
}

test("one port answers HTTP/1.1, HTTP/2 with prior knowledge, and an upgrade", async () => {
  await using both = await startBoth();
  using connection = await connectHttp2(both.url);
  expect(await (await fetch(both.url)).text()).toBe("1.1 GET");
  expect((await connection.text("POST", "/", {}, "{}")).text).toBe("2.0 POST");
  const upgrading = request(both.url, { headers: { connection: "upgrade", upgrade: "WebSocket" } }).end();
  const [response, upgraded] = await once(upgrading, "upgrade");
  expect(response.statusCode).toBe(101);
  upgraded.destroy();
});

test("an offer of h2c by upgrade is declined by an ordinary answer", async () => {
  await using both = await startBoth();
  const headers = { connection: "Upgrade, HTTP2-Settings", upgrade: "h2c", "http2-settings": "AAMAAABkAAQAAP__" };
  const asked = request(both.url, { headers }).end();
  const [response] = await once(asked, "response");
  expect(await textOf(response)).toBe("1.1 GET");
});

test.each([
  ["GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n", "1.1 GET"],
  ["POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}", "1.1 POST"],
  ["PROPFIND / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n", "1.1 PROPFIND"],
])("a request that comes byte by byte is understood: %j", async (text, answer) => {
  await using both = await startBoth();
  const socket = await dial(both.port);
  socket.setNoDelay(true);
  for (const letter of text) await new Promise<void>((sent) => socket.write(letter, () => sent()));
  expect(await textOf(socket)).toMatch(new RegExp(`^HTTP/1.1 200 OK[^]*${answer}`));
});

test("a preface that comes in pieces is understood", async () => {
  await using both = await startBoth();
  const socket = await dial(both.port);
  socket.setNoDelay(true);
  const first = once(socket, "data");
  const emptySettings = Buffer.from([0, 0, 0, 4, 0, 0, 0, 0, 0]);
  for (const part of ["P", "R", "I * HTTP/2.0\r\n\r\nSM", "\r\n\r\n", emptySettings]) {
    await new Promise<void>((sent) => socket.write(part, () => sent()));
  }
  const [settings] = await first;
  expect(settings[3]).toBe(4);
  socket.destroy();
});

test.each(["", "P", "PR"])("who sends %j and no more is cut off in time", async (start) => {
  await using both = await startBoth({ firstBytesMs: 50 });
  const socket = await dial(both.port);
  socket.write(start);
  await once(socket, "close");
  expect(both.seen).toEqual([]);
});

test("a TLS handshake that is never begun is cut off in time", async () => {
  await using both = await startBoth({ tls: TLS, firstBytesMs: 50 });
  const socket = await dial(both.port);
  await once(socket.resume(), "close");
});

test("who says nothing, and who leaves before the third byte, holds up no end", async () => {
  for (const tls of [undefined, TLS]) {
    const both = await startBoth({ tls });
    const silent = await dial(both.port);
    const leaving = await dial(both.port);
    leaving.end("P");
    await both[Symbol.asyncDispose]();
    await once(silent.resume(), "close");
  }
});

test("an HTTP/2 connection that makes no request, and a request whose body does not come, are cut off in time", async () => {
  await using both = await startBoth({ keepAliveMs: 50, requestTimeoutMs: 50 });
  using unused = await connectHttp2(both.url);
  await once(unused.session, "close");
  using slow = await connectHttp2(both.url);
  const stream = slow.session.request({ ":method": "POST", ":path": "/open" }, { endStream: false });
  const closed = new Promise<number | undefined>((resolve) => stream.once("close", () => resolve(stream.rstCode)));
  stream.on("error", () => undefined).resume();
  stream.write("a part");
  expect(await closed).toBe(constants.NGHTTP2_CANCEL);
  expect((await slow.text("POST", "/", {}, "a whole body")).status).toBe(200);
});

test("an HTTP/2 connection on which nothing is open is closed after a time, one with an open stream is not", async () => {
  await using both = await startBoth({ sessionIdleMs: 100, keepAliveMs: 100 });
  using idle = await connectHttp2(both.url);
  using busy = await connectHttp2(both.url);
  const { body } = await busy.ask("GET", "/open");
  await once(idle.session, "close");
  expect(busy.session.closed).toBe(false);
  body.resume().close();
  await once(busy.session, "close");
});

test("a retired connection finishes what is under way and takes no more; a later one takes one request", async () => {
  await using both = await startBoth();
  using open = await connectHttp2(both.url);
  using quiet = await connectHttp2(both.url);
  await quiet.text("GET", "/");
  const { body } = await open.ask("GET", "/open");
  const told = Promise.all([once(open.session, "goaway"), once(quiet.session, "close")]);
  both.retire();
  await told;
  expect(body.resume().closed).toBe(false);
  using late = await connectHttp2(both.url);
  const closed = Promise.all([once(late.session, "close"), once(open.session, "close")]);
  expect((await late.text("GET", "/")).text).toBe("2.0 GET");
  body.resume().close();
  await closed;
});

test("a client that breaks streams and frames harms nobody else", async () => {
  await using both = await startBoth();
  using good = await connectHttp2(both.url);
  using bad = await connectHttp2(both.url);
  for (const code of [constants.NGHTTP2_INTERNAL_ERROR, constants.NGHTTP2_CANCEL, constants.NGHTTP2_NO_ERROR]) {
    const { body } = await bad.ask("GET", "/open");
    const closed = new Promise((resolve) => body.once("close", resolve));
    body.resume().close(code);
    await closed;
  }
  const socket = await dial(both.port);
  socket.write("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\nthis is no frame at all");
  await once(socket.resume(), "close");
  expect((await good.text("GET", "/")).status).toBe(200);
});

test("over TLS the client chooses by ALPN, and HTTP/1.1 is what it gets without", async () => {
  await using both = await startBoth({ tls: TLS });
  using connection = await connectHttp2(both.url, TLS.cert);
  expect((await connection.text("GET", "/")).text).toBe("2.0 GET");
  expect(connection.session.alpnProtocol).toBe("h2");
  const asked = requestTls(both.url, { ca: TLS.cert, agent: false }).end();
  const [response] = await once(asked, "response");
  expect(await textOf(response)).toBe("1.1 GET");
  const upgrading = requestTls(both.url, {
    ca: TLS.cert,
    agent: false,
    headers: { connection: "upgrade", upgrade: "websocket" },
  }).end();
  const [{ statusCode }, upgraded] = await once(upgrading, "upgrade");
  expect(statusCode).toBe(101);
  upgraded.destroy();
  const plain = connectTls({ port: both.port, host: "127.0.0.1", ca: TLS.cert });
  await once(plain, "secureConnect");
  plain.write("GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
  expect(await textOf(plain)).toContain("1.1 GET");
});
