import { BlockList, isIPv4, isIPv6 } from "node:net";
import { networkInterfaces } from "node:os";

/**
 * Special-purpose addresses, and the address of Azure's host, which is routed only there and gives
 * machines their certificates. Source: IANA IPv4 and IPv6 Special-Purpose Address Registries.
 */
const special = new BlockList();
for (const [address, bits] of [
  ["0.0.0.0", 8],
  ["10.0.0.0", 8],
  ["100.64.0.0", 10],
  ["127.0.0.0", 8],
  ["168.63.129.16", 32],
  ["169.254.0.0", 16],
  ["172.16.0.0", 12],
  ["192.0.0.0", 24],
  ["192.0.2.0", 24],
  ["192.88.99.0", 24],
  ["192.168.0.0", 16],
  ["198.18.0.0", 15],
  ["198.51.100.0", 24],
  ["203.0.113.0", 24],
  ["224.0.0.0", 3],
] as const) {
  special.addSubnet(address, bits, "ipv4");
}
for (const [address, bits] of [
  ["2001::", 23],
  ["2001:db8::", 32],
  ["2002::", 16],
  ["3fff::", 20],
] as const) {
  special.addSubnet(address, bits, "ipv6");
}

/**
 * The IPv6 addresses that are routed on the internet; mapped, translated, local and multicast ones
 * are outside.
 */
const global = new BlockList();
global.addSubnet("2000::", 3, "ipv6");

/** Whether an address is one of these, or in one of these CIDR blocks. */
export function addressesOf(entries: readonly string[]): (address: string) => boolean {
  const list = new BlockList();
  for (const entry of entries) {
    const [address = "", bits] = entry.split("/");
    if (bits === undefined) list.addAddress(address, family(address));
    else list.addSubnet(address, Number(bits), family(address));
  }
  return (address) => list.check(address, family(address));
}

const family = (address: string) => (isIPv6(address) ? "ipv6" : "ipv4");

/** Whether an address is on the internet and not this machine's own. */
export function isPublicAddress(address: string): boolean {
  if (isOwnAddress(address)) return false;
  if (isIPv4(address)) return !special.check(address, "ipv4");
  if (!isIPv6(address) || address.includes("%")) return false;
  return global.check(address, "ipv6") && !special.check(address, "ipv6");
}

/** A service on a public address of this machine may trust local clients. */
function isOwnAddress(address: string): boolean {
  return Object.values(networkInterfaces()).some((all) =>
    all?.some((one) => one.address === address),
  );
}
