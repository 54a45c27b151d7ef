import { lookup as lookUp } from "node:dns/promises";
import { once } from "node:events";
import { type IncomingMessage, request, type RequestOptions } from "node:http";
import { connect, type LookupFunction } from "node:net";
import type { Duplex } from "node:stream";
import { isPublicAddress } from "../../shared/process/public-address.node.ts";

/** The only hosts that pip may reach while it installs packages. */
export type Hosts = {
  /** `host:port` of the operator's index and of further configured hosts, public or private. */
  readonly hosts: readonly string[];
  /**
   * Whether ports 80 and 443 of every public address are allowed. False behind a proxy: the agent
   * cannot see which addresses the proxy would reach.
   */
  readonly internet: boolean;
  /** HTTP proxy for named hosts without a private address; null for none. */
  readonly proxy: URL | null;
};

export class Refusal extends Error {}

type Route = { readonly proxy: URL } | { readonly lookup: LookupFunction };

/** Opens a connection to a host that pip chose. */
export async function openTunnel(
  hosts: Hosts,
  target: URL,
  port: number,
  signal: AbortSignal,
): Promise<Duplex> {
  const route = await findRoute(hosts, target, port);
  if ("lookup" in route) {
    const direct = connect({ host: bare(target), port, lookup: route.lookup, signal });
    await once(direct, "connect");
    return direct;
  }
  const asked = request({
    ...throughProxy(route.proxy),
    method: "CONNECT",
    path: `${target.hostname}:${port}`,
    signal,
  }).end();
  const { promise, resolve, reject } = Promise.withResolvers<Duplex>();
  asked.on("error", reject);
  asked.on("connect", ({ statusCode, statusMessage }: IncomingMessage, socket: Duplex, head) => {
    if (statusCode === 200) {
      if (head.length > 0) socket.unshift(head);
      return resolve(socket);
    }
    socket.destroy();
    reject(new Error(`pip_proxy answered ${statusCode} ${statusMessage}`));
  });
  return promise;
}

/** Where to send a request without TLS, and with which path and headers. */
export async function requestOptions(
  hosts: Hosts,
  target: URL,
): Promise<Omit<RequestOptions, "headers"> & { readonly headers: Record<string, string> }> {
  const port = Number(target.port || 80);
  const path = target.pathname + target.search;
  const route = await findRoute(hosts, target, port);
  if ("lookup" in route) {
    return { host: bare(target), port, path, lookup: route.lookup, headers: {} };
  }
  return { ...throughProxy(route.proxy), path: `${target.origin}${path}` };
}

/** Names are resolved here, and the connection goes to the checked address. */
async function findRoute(
  { hosts, internet, proxy }: Hosts,
  target: URL,
  port: number,
): Promise<Route> {
  const place = `${target.hostname}:${port}`;
  const isNamed = hosts.includes(place);
  const isOpen = internet && proxy === null && (port === 80 || port === 443);
  if (!isNamed && !isOpen) {
    throw new Refusal(`${place} may not be reached while packages are installed (pip_hosts)`);
  }
  const looking = lookUp(bare(target), { all: true });
  const addresses = await (proxy === null ? looking : looking.catch(() => []));
  const isHidden = addresses.some(({ address }) => !isPublicAddress(address));
  if (proxy !== null && !isHidden) return { proxy };
  if (isHidden && !isNamed) throw new Refusal(`${place} is not on the internet (pip_hosts)`);
  return {
    lookup: (_hostname, options, done) => {
      const [first] = addresses;
      if (options.all) done(null, addresses);
      else done(null, first?.address ?? "", first?.family);
    },
  };
}

function throughProxy(proxy: URL) {
  const { username, password, port } = proxy;
  const headers: Record<string, string> = {};
  if (username !== "") {
    const credentials = `${decodeURIComponent(username)}:${decodeURIComponent(password)}`;
    headers["proxy-authorization"] = `Basic ${Buffer.from(credentials).toString("base64")}`;
  }
  return { host: bare(proxy), port: port || 80, headers };
}

/** A host's name or address; IPv6 without brackets. */
function bare({ hostname }: URL): string {
  return hostname.replace(/^\[|\]$/g, "");
}
