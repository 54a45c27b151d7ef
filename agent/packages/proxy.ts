import { createHash } from "node:crypto";
import { lookup as lookUp } from "node:dns/promises";
import { once } from "node:events";
import { createReadStream } from "node:fs";
import { readdir, readFile, stat } from "node:fs/promises";
import {
  createServer,
  type IncomingHttpHeaders,
  type IncomingMessage,
  request as httpRequest,
  type RequestOptions,
  type ServerResponse,
} from "node:http";
import { connect, type LookupFunction } from "node:net";
import { join } from "node:path";
import { type Duplex, pipeline } from "node:stream";
import { describeError } from "../../shared/log-line.ts";
import { isPublicAddress } from "../../shared/process/public-address.node.ts";
import { JobRefusal } from "../host/policy.ts";

/** The hosts that may be reached, and the files that the agent offers under `filesUrl`. */
export type Reach = Hosts & { readonly files: readonly PackageFile[] };

/** The URL of the agent's own files, with a name that nobody can register (RFC 6761). */
export const filesUrl = "http://packages.airlock.invalid/";
const filesHost = new URL(filesUrl).host;

/** A status line, which pip shows in its errors. */
type Answer = { readonly status: number; readonly text: string };

/**
 * An HTTP proxy without a port: it serves the connections that it is given.
 *
 * @param onProblem called with what could not be reached, because pip does not report it if it has
 *   other links.
 */
export function createPackageProxy(
  reach: Reach,
  onProblem: (words: string) => void,
): (connection: Duplex) => void {
  function answerTo(error: unknown): Answer {
    const status = error instanceof Refusal ? 403 : 502;
    const text = describeError(error).replaceAll(/[^\x20-\x7e]/g, "?");
    onProblem(text);
    return { status, text };
  }
  const server = createServer((request, response) => {
    const refuse = (error: unknown): void => send(response, answerTo(error));
    forward(reach, request, response, refuse).catch(refuse);
  });
  server.on("connect", (request: IncomingMessage, client: Duplex, head: Buffer) => {
    tunnel(reach, request.url ?? "", client, head).catch((error: unknown) => {
      const { status, text } = answerTo(error);
      // A stream whose end nobody reads stays open.
      client.resume();
      client.end(`HTTP/1.1 ${status} ${text}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n`);
    });
  });
  return (connection) => server.emit("connection", connection);
}

/** Tunnels a client's bytes, mostly TLS, to a host of its choice. */
async function tunnel(reach: Reach, authority: string, client: Duplex, head: Buffer) {
  const target = new URL(`http://${authority}`);
  const port = Number(/:([0-9]+)$/.exec(authority)?.[1]);
  const gone = new AbortController();
  client.on("close", () => gone.abort(new Error("given up")));
  const upstream = await openTunnel(reach, target, port, gone.signal);
  client.write("HTTP/1.1 200 Connection established\r\n\r\n");
  // The side that ends first still gets everything that the other side sends.
  upstream.allowHalfOpen = true;
  upstream.write(head);
  pipeline(client, upstream, client, () => {});
}

/** Passes on one request without TLS. */
async function forward(
  reach: Reach,
  request: IncomingMessage,
  response: ServerResponse,
  refuse: (error: unknown) => void,
) {
  const asked = URL.parse(request.url ?? "");
  if (asked?.protocol !== "http:") throw new Refusal("not a request to a proxy");
  const target = mirrored(reach, asked);
  if (target.host === filesHost) return serveFile(reach.files, target, response);
  const options = await requestOptions(reach, target);
  const upstream = httpRequest({
    ...options,
    method: request.method,
    headers: { ...endToEnd(request.headers), ...options.headers, host: target.host },
    agent: false,
  });
  response.on("close", () => upstream.destroy());
  upstream.on("response", (answer) => {
    response.writeHead(answer.statusCode ?? 502, endToEnd(answer.headers));
    pipeline(answer, response, () => {});
  });
  upstream.on("error", refuse);
  pipeline(request, upstream, () => {});
}

/** Where a request goes: those of Debian's packages to the configured mirror. */
function mirrored({ aptMirror }: Hosts, asked: URL): URL {
  if (aptMirror === undefined || asked.host !== "deb.debian.org") return asked;
  return new URL(aptMirror.replace(/\/$/, "") + asked.pathname);
}

/** Headers that concern one connection only, beside those that Connection names. Source: RFC 9110, 7.6.1. */
const hopByHop = new Set([
  "connection",
  "keep-alive",
  "proxy-authenticate",
  "proxy-authorization",
  "proxy-connection",
  "te",
  "trailer",
  "transfer-encoding",
  "upgrade",
]);

function endToEnd(headers: IncomingHttpHeaders): IncomingHttpHeaders {
  const named = headers.connection?.toLowerCase().split(/[\s,]+/) ?? [];
  const isEndToEnd = (name: string): boolean => !hopByHop.has(name) && !named.includes(name);
  return Object.fromEntries(Object.entries(headers).filter(([name]) => isEndToEnd(name)));
}

/** The page of links to the agent's own files, or one of them. */
function serveFile(files: readonly PackageFile[], { pathname }: URL, response: ServerResponse) {
  const names = new Map(files.map((file) => [`/${encodeURIComponent(file.name)}`, file]));
  const file = names.get(pathname);
  if (file) {
    response.writeHead(200, { "content-length": file.sizeBytes });
    pipeline(createReadStream(file.path, { end: file.sizeBytes - 1 }), response, () => {});
  } else if (pathname === "/") {
    const links = [...names.keys()].map((path) => `<a href="${path}">${path.slice(1)}</a>`);
    response.writeHead(200, { "content-type": "text/html" });
    response.end(`<!doctype html><html><body>${links.join("\n")}</body></html>`);
  } else {
    response.writeHead(404).end();
  }
}

function send(response: ServerResponse, { status, text }: Answer): void {
  if (response.headersSent) response.destroy();
  else response.writeHead(status, text, { connection: "close" }).end();
}

/** The agent's keys `pip_…`, `npm_registry` and `apt_mirror`: where packages come from. */
export type PipConfig = {
  readonly indexUrl: string | undefined;
  readonly findLinks: string | undefined;
  readonly caFile: string | undefined;
  /**
   * `host` or `host:port` of hosts that may be reached in addition to the index, public or private.
   */
  readonly hosts: readonly string[];
  readonly proxyUrl: string | undefined;
  readonly npmRegistry: string | undefined;
  readonly aptMirror: string | undefined;
};

/** A file of the agent's host that pip needs. */
type PackageFile = {
  readonly name: string;
  readonly path: string;
  readonly sizeBytes: number;
  readonly changedMs: number;
};

/** Where a build finds its files. */
const FOLDER = "/tmp/airlock-build";
/** Name of the file with the certificates of pip_ca_file. */
export const CERTIFICATES = "ca.pem";

/** The variables in which programs look for the file of certificates that they trust. */
export const caVariables = [
  "PIP_CERT",
  "SSL_CERT_FILE",
  "CURL_CA_BUNDLE",
  "NODE_EXTRA_CA_CERTS",
  "npm_config_cafile",
];

/** How the names of variables begin in which npm looks for the secrets of a host. */
export const NPM_SECRETS = "npm_config_//";

/** Settings of pip for every source of packages. */
const pipAlways = {
  // On Debian only apt may install into the system's Python (PEP 668); in a single-purpose image
  // pip may.
  PIP_BREAK_SYSTEM_PACKAGES: "1",
  PIP_ROOT_USER_ACTION: "ignore",
  PIP_DISABLE_PIP_VERSION_CHECK: "1",
  PIP_NO_CACHE_DIR: "1",
  PIP_NO_INPUT: "1",
  PIP_PROGRESS_BAR: "off",
};

/**
 * Where the steps of a build get packages. `env` has settings of pip, npm and others, with the paths of the files.
 *
 * @throws JobRefusal if a configured file or folder cannot be read.
 */
export async function readPackageSource(config: PipConfig) {
  const { indexUrl, findLinks, caFile, npmRegistry } = config;
  const wheels = (await listPackages(findLinks)).map((file) => ({
    ...file,
    name: `packages/${file.name}`,
  }));
  const ca = caFile === undefined ? [] : [await describeFile("pip_ca_file", caFile, CERTIFICATES)];
  const env: Record<string, string> = {
    ...pipAlways,
    ...(indexUrl !== undefined && indexEnv(indexUrl)),
    ...(findLinks !== undefined && { PIP_FIND_LINKS: `${FOLDER}/packages` }),
    ...(caFile !== undefined &&
      Object.fromEntries(caVariables.map((name) => [name, `${FOLDER}/${CERTIFICATES}`]))),
    ...(!asksIndex(config) && { PIP_NO_INDEX: "1" }),
    ...(npmRegistry !== undefined && registryEnv(npmRegistry)),
  };
  return { files: [...wheels, ...ca], env, hosts: buildHosts(config) };
}

/** The hosts that pip may reach through the agent; the container itself has no network. */
function reachableHosts(config: PipConfig): Hosts {
  const { proxyUrl } = config;
  const proxy = proxyUrl === undefined ? null : new URL(proxyUrl);
  return { hosts: namedHosts(config), internet: asksIndex(config), proxy };
}

/** The hosts that the steps of a build may reach. */
function buildHosts(config: PipConfig): Hosts {
  const { npmRegistry, aptMirror, proxyUrl } = config;
  const { hosts, ...rest } = reachableHosts(config);
  const own = [npmRegistry ?? [], aptMirror ?? []].flat().map(placeOf);
  // Through a proxy, only named hosts are allowed.
  const usual = [
    ...(npmRegistry === undefined ? ["registry.npmjs.org:443"] : []),
    ...(aptMirror === undefined ? debian : []),
  ];
  const all = [...hosts, ...own, ...(proxyUrl === undefined ? [] : usual)];
  return { ...rest, hosts: all, ...(aptMirror !== undefined && { aptMirror }) };
}

/** PyPI's hosts: its index, and its files. */
const pypi = ["pypi.org:443", "files.pythonhosted.org:443"];
/** Hosts of the packages of Debian and Ubuntu, whose signatures apt checks. */
const debian = [
  "deb.debian.org:80",
  "security.debian.org:80",
  "archive.ubuntu.com:80",
  "security.ubuntu.com:80",
];

function namedHosts(config: PipConfig): string[] {
  const { indexUrl, hosts } = config;
  const index = indexUrl === undefined ? [] : [placeOf(indexUrl)];
  // Through a proxy, only named hosts are allowed.
  const usual = asksIndex(config) && indexUrl === undefined && config.proxyUrl ? pypi : [];
  const further = hosts.flatMap((host) =>
    /:[0-9]+$/.test(host) ? [host] : [`${host}:80`, `${host}:443`],
  );
  return [...index, ...usual, ...further];
}

function placeOf(indexUrl: string): string {
  const { protocol, hostname, port } = new URL(indexUrl);
  return `${hostname}:${port || (protocol === "http:" ? 80 : 443)}`;
}

/**
 * Whether pip uses an index: PyPI unless another is configured; none if only files are configured.
 */
function asksIndex({ indexUrl, findLinks }: PipConfig): boolean {
  return findLinks === undefined || indexUrl !== undefined;
}

/** pip ignores an index without TLS unless it is listed as trusted. */
function indexEnv(indexUrl: string): Record<string, string> {
  const { protocol, host } = new URL(indexUrl);
  return { PIP_INDEX_URL: indexUrl, ...(protocol === "http:" && { PIP_TRUSTED_HOST: host }) };
}

/** npm reads no user, password or token from the address of its registry. */
function registryEnv(npmRegistry: string): Record<string, string> {
  const url = new URL(npmRegistry);
  const [user = "", password = ""] = [url.username, url.password].map(decodeURIComponent);
  url.username = url.password = "";
  const [kind, value] = password
    ? ["_auth", Buffer.from(`${user}:${password}`).toString("base64")]
    : ["_authToken", user];
  return {
    npm_config_registry: url.href,
    ...(user + password !== "" && { [`${NPM_SECRETS}${url.host}/:${kind}`]: value }),
  };
}

/** The packages in the folder `pip_find_links`, by name. */
async function listPackages(folder: string | undefined): Promise<PackageFile[]> {
  if (folder === undefined) return [];
  const names = await readdir(folder).catch((error: unknown) => {
    throw unreadable("pip_find_links", folder, error);
  });
  const packages = names.filter((name) => /\.(whl|zip|tar\.gz)$/.test(name)).sort();
  return Promise.all(
    packages.map((name) => describeFile("pip_find_links", join(folder, name), name)),
  );
}

async function describeFile(key: string, path: string, name: string): Promise<PackageFile> {
  const { size, mtimeMs } = await stat(path).catch((error: unknown) => {
    throw unreadable(key, path, error);
  });
  return { name, path, sizeBytes: size, changedMs: mtimeMs };
}

function unreadable(key: string, path: string, cause: unknown): JobRefusal {
  const reason = describeError(cause);
  return new JobRefusal("config_error", `${key} of the agent cannot be read: ${path}: ${reason}`, {
    cause,
  });
}

/** The path of the certificates; python/packages.py creates the folder. */
export const certificatesName = ".pip/ca.pem";

/**
 * Where pip gets packages for a job. `certificates` (PEM) is null if none are configured; `fingerprint` changes when
 * packages come from another place.
 *
 * @throws JobRefusal if a configured file or folder cannot be read.
 */
export async function readRuntimeSource(config: PipConfig) {
  const { indexUrl, findLinks, caFile } = config;
  const files = await listPackages(findLinks);
  const certificates = caFile === undefined ? null : await readCertificates(caFile);
  const index = indexUrl === undefined ? {} : indexEnv(indexUrl);
  const trusted = [index["PIP_TRUSTED_HOST"] ?? [], files.length > 0 ? new URL(filesUrl).host : []];
  const pipEnv = {
    ...pipAlways,
    // Few retries: a refused host stays refused, and the start-up time is short.
    PIP_RETRIES: "1",
    ...index,
    ...(trusted.flat().length > 0 && { PIP_TRUSTED_HOST: trusted.flat().join(" ") }),
    ...(findLinks !== undefined && { PIP_FIND_LINKS: filesUrl }),
    ...(certificates !== null && { PIP_CERT: `/packages/${certificatesName}` }),
    ...(!asksIndex(config) && { PIP_NO_INDEX: "1" }),
  };
  const offered = files.map(({ name, sizeBytes }) => [name, sizeBytes]);
  const fingerprint = createHash("sha256")
    .update(JSON.stringify([pipEnv, offered]))
    .digest("hex");
  return {
    pipEnv,
    reach: { ...reachableHosts(config), files },
    certificates,
    fingerprint,
  };
}

async function readCertificates(path: string): Promise<Uint8Array> {
  return readFile(path).catch((error: unknown) => {
    throw unreadable("pip_ca_file", path, error);
  });
}

/** The only hosts that may be reached while packages are installed. */
type Hosts = {
  /** `host:port` of the operator's index and of further configured hosts, public or private. */
  readonly hosts: readonly string[];
  /**
   * Whether ports 80 and 443 of every public address are allowed. False behind a proxy: the agent
   * cannot see which addresses the proxy would reach.
   */
  readonly internet: boolean;
  /** HTTP proxy for named hosts without a private address; null for none. */
  readonly proxy: URL | null;
  /** Address of the mirror that requests to deb.debian.org go to. */
  readonly aptMirror?: string;
};

class Refusal extends Error {}

type Route = { readonly proxy: URL } | { readonly lookup: LookupFunction };

/** Opens a connection to a host that pip chose. */
async function openTunnel(
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
  const asked = httpRequest({
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
async function requestOptions(
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
  if (isHidden && !isNamed) {
    throw new Refusal(`${place} has a private address: add it to the agent's pip_hosts`);
  }
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
