import type { LookupAddress, LookupOptions } from "node:dns";
import { lookup as resolveName } from "node:dns/promises";
import { isIP } from "node:net";
import { BrokerError } from "../protocol/problems.ts";
import { isPublicAddress } from "./addresses.ts";

/** All addresses of a host name. */
export type Resolve = (name: string) => Promise<readonly LookupAddress[]>;

/** The signature that node:http wants of a `lookup`. */
export type Lookup = (
  name: string,
  options: LookupOptions,
  callback: (error: Error | null, address: string | LookupAddress[], family?: number) => void,
) => void;

/** Decides where deliveries may go (PROTOCOL.md 9.1): never into the operator's own networks unless he has listed the host. */
export interface Guard {
  /** What can be said from the URL alone. @throws BrokerError bad_request */
  check(url: string): URL;
  /** The same, and what its name resolves to now; a name that does not resolve passes, as it may later. @throws BrokerError bad_request */
  checkNow(url: string): Promise<URL>;
  /** Resolves, checks and hands over in one step: the connection goes to the addresses that were checked. */
  readonly lookup: Lookup;
}

const LOWEST_FREE_PORT = 1024;
const WEB_PORTS = ["", "80", "443"];

const refused = (text: string): BrokerError =>
  new BrokerError("bad_request", `url: ${text} Choose another URL.`, { details: { field: "url" } });

/** Without the brackets of an IPv6 literal and the root's dot, in lower case. */
const plainHost = (host: string): string =>
  host
    .replace(/^\[|\]$/g, "")
    .replace(/\.$/, "")
    .toLowerCase();

const resolveAll: Resolve = (name) => resolveName(name, { all: true });

/** `allowedHosts`: exact names or addresses that may be private and may be called without TLS. */
export function createGuard(allowedHosts: readonly string[], resolve: Resolve = resolveAll): Guard {
  const allowed = new Set(allowedHosts.map(plainHost));
  const isAllowed = (name: string): boolean => allowed.has(plainHost(name));
  const refusedAddress = (name: string): BrokerError =>
    refused(
      `${plainHost(name)} is not on the public internet; the operator can list it in PATCHBAY_WEBHOOK_ALLOWED_HOSTS.`,
    );

  function check(text: string): URL {
    if (!URL.canParse(text)) throw refused("is not a URL.");
    // The parser has brought every spelling of an IPv4 address (0x7f.1, 2130706433) into the plain one.
    const url = new URL(text);
    const isListed = isAllowed(url.hostname);
    if (url.protocol !== "https:" && !(url.protocol === "http:" && isListed)) throw refused("must be https.");
    if (url.username !== "" || url.password !== "") throw refused("must not carry credentials.");
    if (url.hash !== "") throw refused("must not have a fragment.");
    if (!WEB_PORTS.includes(url.port) && Number(url.port) < LOWEST_FREE_PORT)
      throw refused(`the port must be 80, 443 or from ${LOWEST_FREE_PORT} up.`);
    const host = plainHost(url.hostname);
    if (isIP(host) !== 0 && !isListed && !isPublicAddress(host)) throw refusedAddress(host);
    return url;
  }

  async function addressesOf(name: string): Promise<readonly LookupAddress[]> {
    const found = await resolve(name);
    if (!isAllowed(name) && !found.every(({ address }) => isPublicAddress(address))) throw refusedAddress(name);
    return found;
  }

  return {
    check,
    async checkNow(text) {
      const url = check(text);
      const host = plainHost(url.hostname);
      if (isIP(host) !== 0) return url;
      await addressesOf(host).catch((error: unknown) => {
        if (error instanceof BrokerError) throw error;
      });
      return url;
    },
    lookup(name, options, callback) {
      addressesOf(name).then(
        (found) => {
          const [first] = found;
          if (first === undefined) callback(new Error(`${name} has no address`), "");
          else if (options.all === true) callback(null, [...found]);
          else callback(null, first.address, first.family);
        },
        (error: unknown) => callback(error instanceof Error ? error : new Error(String(error)), ""),
      );
    },
  };
}
