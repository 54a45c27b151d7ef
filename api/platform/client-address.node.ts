import { BlockList, isIP, isIPv6 } from "node:net";
import type { HttpBindings } from "@hono/node-server";
import type { Context } from "hono";

/**
 * The client's address: the socket's address or, if that is one of the `trusted` proxies, the last
 * address in X-Forwarded-For that is not a trusted proxy. An entry that is no address ends the search,
 * because the client could have written everything before it.
 */
export function clientAddress(trusted: string[]): (c: Context) => string {
  const proxies = blockList(trusted);
  const isProxy = (address: string) => proxies.check(address, family(address));
  return (c: Context<{ Bindings: HttpBindings }>) => {
    const socket = plain(c.env.incoming.socket.remoteAddress ?? "unknown");
    if (trusted.length === 0 || !isProxy(socket)) return socket;
    let client = socket;
    for (const entry of (c.req.header("X-Forwarded-For") ?? "").split(",").toReversed()) {
      const address = addressOf(entry.trim());
      if (address === undefined) break;
      client = address;
      if (!isProxy(address)) break;
    }
    return client;
  };
}

function blockList(entries: string[]): BlockList {
  const list = new BlockList();
  for (const entry of entries) {
    const [address = "", bits] = entry.split("/");
    if (bits === undefined) list.addAddress(address, family(address));
    else list.addSubnet(address, Number(bits), family(address));
  }
  return list;
}

/** The address in an entry: `ip`, `ip:port`, `[ip]` or `[ip]:port`. */
function addressOf(entry: string): string | undefined {
  const [, bracketed, ip4] = /^(?:\[(.+)\]|([\d.]+))(?::\d+)?$/.exec(entry) ?? [];
  const address = plain(bracketed ?? ip4 ?? entry);
  return isIP(address) === 0 ? undefined : address;
}

/** Removes the IPv6 prefix from an IPv4 address of a dual-stack socket. */
function plain(address: string): string {
  return address.replace(/^::ffff:(?=\d+\.)/i, "");
}

function family(address: string): "ipv4" | "ipv6" {
  return isIPv6(address) ? "ipv6" : "ipv4";
}
