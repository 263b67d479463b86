import { expect, test } from "vitest";
import { BrokerError } from "../../src/protocol/problems.ts";
import { isPublicAddress } from "../../src/webhooks/addresses.ts";
import { createGuard } from "../../src/webhooks/target.ts";
import { verifies } from "../kit/verifies.ts";

const PRIVATE = [
  "127.0.0.1",
  "127.8.9.10",
  "0.0.0.0",
  "10.1.2.3",
  "172.16.0.1",
  "172.31.255.255",
  "192.168.1.1",
  "169.254.169.254",
  "169.254.0.1",
  "100.64.0.1",
  "100.127.255.254",
  "192.0.0.8",
  "192.0.2.1",
  "198.18.0.1",
  "198.51.100.1",
  "203.0.113.9",
  "192.88.99.1",
  "224.0.0.1",
  "239.255.255.255",
  "240.0.0.1",
  "255.255.255.255",
  "::",
  "::1",
  "::ffff:127.0.0.1",
  "::ffff:8.8.8.8",
  "::127.0.0.1",
  "64:ff9b::7f00:1",
  "64:ff9b:1::1",
  "100::1",
  "fc00::1",
  "fd00:ec2::254",
  "fe80::1",
  "fe80::1%eth0",
  "fec0::1",
  "ff02::1",
  "2001::1",
  "2001:db8::1",
  "2002:7f00:1::1",
  "3fff::1",
];
const PUBLIC = ["8.8.8.8", "172.32.0.1", "100.128.0.1", "11.0.0.1", "2606:4700::1111", "2a00:1450:4001::200e"];

const fieldOf = (error: unknown): unknown =>
  error instanceof BrokerError && error.code === "bad_request" ? error.details?.["field"] : error;
const judged = (work: () => unknown): unknown => {
  try {
    work();
    return "passes";
  } catch (error) {
    return fieldOf(error);
  }
};

test("an address is public or it is not", () => {
  expect(PRIVATE.filter(isPublicAddress)).toEqual([]);
  expect(PUBLIC.filter((address) => !isPublicAddress(address))).toEqual([]);
  expect(["", "localhost", "1.2.3", "8.8.8.8 "].filter(isPublicAddress)).toEqual([]);
});

const literal = (address: string): string => (address.includes(":") ? `[${address}]` : address);

verifies("WEBHOOKS", "an address that is not public is refused however it is written", () => {
  const guard = createGuard([]);
  for (const address of PRIVATE.filter((one) => !one.includes("%"))) {
    expect({ address, is: judged(() => guard.check(`https://${literal(address)}/`)) }).toEqual({ address, is: "url" });
  }
  for (const host of ["2130706433", "0x7f.1", "0177.0.0.1", "127.1", "[::ffff:7f00:1]", "127.0.0.1.", "①27.0.0.1"]) {
    expect({ host, is: judged(() => guard.check(`https://${host}/`)) }).toEqual({ host, is: "url" });
  }
  for (const address of PUBLIC) {
    expect({ address, is: judged(() => guard.check(`https://${literal(address)}/`)) }).toEqual({
      address,
      is: "passes",
    });
  }
});

verifies("WEBHOOKS", "only https, no credentials, no ports of other services; a listed host may have http", () => {
  const guard = createGuard(["hooks.intranet", "[::1]"]);
  const table: readonly (readonly [string, string])[] = [
    ["https://hooks.example/a?b=c", "passes"],
    ["https://hooks.example:8443/", "passes"],
    ["https://hooks.example:80/", "passes"],
    ["http://hooks.example/", "url"],
    ["ftp://hooks.example/", "url"],
    ["file:///etc/passwd", "url"],
    ["https://user:pass@hooks.example/", "url"],
    ["https://user@hooks.example/", "url"],
    ["https://hooks.example/#part", "url"],
    ["https://hooks.example:22/", "url"],
    ["https://hooks.example:0/", "url"],
    ["https://hooks.example:1023/", "url"],
    ["hooks.example", "url"],
    ["", "url"],
    ["http://hooks.intranet/", "passes"],
    ["http://HOOKS.intranet.:8080/", "passes"],
    ["http://hooks.intranet:25/", "url"],
    ["http://sub.hooks.intranet/", "url"],
    ["http://[::1]:8080/", "passes"],
    ["http://127.0.0.1:8080/", "url"],
  ];
  for (const [url, expected] of table) {
    expect({ url, is: judged(() => guard.check(url)) }).toEqual({ url, is: expected });
  }
});

verifies(
  "WEBHOOKS",
  "a name that resolves to an address which is not public is refused, all its addresses count",
  async () => {
    for (const address of PRIVATE) {
      const found = [PUBLIC[0] ?? "", address].map((one) => ({ address: one, family: one.includes(":") ? 6 : 4 }));
      const guard = createGuard([], async () => found);
      expect(await guard.checkNow("https://rebound.example/").then(String, fieldOf)).toBe("url");
      const { promise, resolve } = Promise.withResolvers<unknown>();
      guard.lookup("rebound.example", { all: true }, (error) => resolve(fieldOf(error)));
      expect({ address, is: await promise }).toEqual({ address, is: "url" });
    }
    // The system's own resolver.
    expect(await createGuard([]).checkNow("https://localhost/").then(String, fieldOf)).toBe("url");
    expect(await createGuard(["localhost"]).checkNow("http://localhost/").then(String)).toBe("http://localhost/");
  },
);
