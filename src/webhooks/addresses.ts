import { BlockList, isIP } from "node:net";

/** IPv4 that is not the public internet (IANA's special-purpose registry), multicast and what is reserved. */
const NOT_PUBLIC_V4: readonly (readonly [string, number])[] = [
  ["0.0.0.0", 8],
  ["10.0.0.0", 8],
  ["100.64.0.0", 10],
  ["127.0.0.0", 8],
  ["169.254.0.0", 16],
  ["172.16.0.0", 12],
  ["192.0.0.0", 24],
  ["192.0.2.0", 24],
  ["192.88.99.0", 24],
  ["192.168.0.0", 16],
  ["198.18.0.0", 15],
  ["198.51.100.0", 24],
  ["203.0.113.0", 24],
  ["224.0.0.0", 4],
  ["240.0.0.0", 4],
];
/** Parts of 2000::/3 that are no hosts, or carry an IPv4 address that nobody has checked (Teredo, 6to4). */
const NOT_PUBLIC_V6: readonly (readonly [string, number])[] = [
  ["2001::", 23],
  ["2001:db8::", 32],
  ["2002::", 16],
  ["3fff::", 20],
];

const notPublic = new BlockList();
for (const [net, bits] of NOT_PUBLIC_V4) notPublic.addSubnet(net, bits, "ipv4");
const notPublicV6 = new BlockList();
for (const [net, bits] of NOT_PUBLIC_V6) notPublicV6.addSubnet(net, bits, "ipv6");
/** All unicast addresses that are given out so far: loopback, mapped, unique local, link-local and multicast are outside of it. */
const unicastV6 = new BlockList();
unicastV6.addSubnet("2000::", 3, "ipv6");

/** Whether an address is a host on the public internet. Anything that is no plain address is not. */
export function isPublicAddress(address: string): boolean {
  // An address with a zone is one of this machine's links.
  if (address.includes("%")) return false;
  const family = isIP(address);
  if (family === 4) return !notPublic.check(address, "ipv4");
  return family === 6 && unicastV6.check(address, "ipv6") && !notPublicV6.check(address, "ipv6");
}
