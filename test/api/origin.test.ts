import fc from "fast-check";
import { expect, test } from "vitest";
import { classifyOrigin, isOurHost } from "../../src/api/origin.ts";

const judge = (origin: string | undefined, host: string, more: { tls?: boolean; allowed?: string[] } = {}) =>
  classifyOrigin({ origin, host, localPort: 4400, tls: more.tls ?? false, allowedOrigins: more.allowed ?? [] });

test("own, allowed and refused origins", () => {
  expect(judge(undefined, "127.0.0.1:4400")).toBe("absent");
  expect(judge("http://127.0.0.1:4400", "127.0.0.1:4400")).toBe("own");
  expect(judge("http://localhost:4400", "localhost:4400")).toBe("own");
  expect(judge("http://localhost:4400", "127.0.0.1:4400")).toBe("allowed");
  expect(judge("http://[::1]:4400", "localhost:4400")).toBe("allowed");
  expect(judge("http://localhost:3000", "localhost:4400")).toBe("refused");
  expect(judge("http://localhost:4400", "192.0.2.7:4400")).toBe("refused");
  expect(judge("http://192.0.2.7:4400", "192.0.2.7:4400")).toBe("own");
  // A proxy that speaks TLS for us; default ports are left out by browsers.
  expect(judge("https://patchbay.example", "patchbay.example")).toBe("own");
  expect(judge("https://patchbay.example", "patchbay.example:443")).toBe("own");
  expect(judge("http://patchbay.example", "patchbay.example", { tls: true })).toBe("refused");
  expect(judge("https://patchbay.example", "patchbay.example", { tls: true })).toBe("own");
  expect(judge("https://a.example", "b.example", { allowed: ["https://a.example"] })).toBe("allowed");
  for (const origin of ["null", "", "file://", "https://a.example/", "https://a.example.evil", "HTTPS://a.example"]) {
    expect(judge(origin, "b.example", { allowed: ["https://a.example"] })).toBe("refused");
  }
});

test("hosts are loopback, addresses, or listed", () => {
  for (const host of [
    "localhost",
    "LOCALHOST:1",
    "a.localhost",
    "127.9.9.9",
    "[::1]:4400",
    "[2001:db8::1]",
    "192.0.2.1:80",
  ]) {
    expect({ host, ours: isOurHost(host, []) }).toEqual({ host, ours: true });
  }
  for (const host of [
    undefined,
    "",
    "evil.example",
    "localhost.evil.example",
    "127.0.0.1.evil.example",
    "0x7f.1",
    "a b",
    "x@localhost",
    "localhost/",
    "[::1",
    "::1]",
  ]) {
    expect({ host, ours: isOurHost(host, []) }).toEqual({ host, ours: false });
  }
  expect(isOurHost("Pb.Example:8443", ["pb.example"])).toBe(true);
  expect(isOurHost("pb.example:8443", ["pb.example:8443"])).toBe(true);
  expect(isOurHost("pb.example:1", ["pb.example:8443"])).toBe(false);
});

test("an origin is never own unless its host and port are the ones that were asked", () => {
  const name = fc.constantFrom("localhost", "127.0.0.1", "a.example", "b.example");
  const port = fc.integer({ min: 1, max: 65_535 });
  fc.assert(
    fc.property(name, port, name, port, (originName, originPort, hostName, hostPort) => {
      const kind = judge(`http://${originName}:${originPort}`, `${hostName}:${hostPort}`);
      if (kind === "own") expect([originName, originPort]).toEqual([hostName, hostPort]);
      if (kind === "allowed") expect(originPort).toBe(4400);
    }),
  );
});
