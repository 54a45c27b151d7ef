import { lookup as lookUp } from "node:dns/promises";
import { createReadStream } from "node:fs";
import {
  createServer,
  type IncomingHttpHeaders,
  type IncomingMessage,
  request as httpRequest,
  type ServerResponse,
} from "node:http";
import { once } from "node:events";
import { connect, type LookupFunction } from "node:net";
import { type Duplex, pipeline } from "node:stream";
import { describeError } from "../../shared/log-line.ts";
import type { PackageFile } from "./source.ts";
import { isPublicAddress } from "./public-address.ts";

/** What pip may reach while it installs packages for a job, and nothing else. */
export type Reach = {
  /** Host and port of the operator's own index, wherever it is; null where it is PyPI. */
  readonly index: string | null;
  /** Ports 80 and 443 of every public address. */
  readonly internet: boolean;
  /** Files that the agent itself offers, under `filesUrl`. */
  readonly files: readonly PackageFile[];
};

/** Where the agent's own files are found: a name that nobody can own (RFC 6761). */
export const filesUrl = "http://packages.airlock.invalid/";
const filesHost = new URL(filesUrl).host;

class Refusal extends Error {}

/** A status line, which pip repeats. */
type Answer = { readonly status: number; readonly text: string };

/**
 * An HTTP proxy without a port of its own: it serves the connections that it is given. Names are
 * looked up here, and the connection goes to the address that was checked.
 *
 * @param onProblem told what could not be reached, which pip keeps to itself where it has other links.
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
      client.end(`HTTP/1.1 ${status} ${text}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n`);
    });
  });
  return (connection) => server.emit("connection", connection);
}

/** Passes on what a client says to a host of its choice, mostly TLS. */
async function tunnel(reach: Reach, authority: string, client: Duplex, head: Buffer) {
  const target = new URL(`http://${authority}`);
  const port = Number(/:([0-9]+)$/.exec(authority)?.[1]);
  const lookup = await pin(reach, target, port);
  const upstream = connect({ host: bare(target), port, lookup });
  client.on("close", () => upstream.destroy(new Error("given up")));
  await once(upstream, "connect");
  client.write("HTTP/1.1 200 Connection established\r\n\r\n");
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
  const target = URL.parse(request.url ?? "");
  if (target?.protocol !== "http:") throw new Refusal("not a request to a proxy");
  if (target.host === filesHost) return serveFile(reach.files, target, response);
  const port = Number(target.port || 80);
  const upstream = httpRequest({
    host: bare(target),
    port,
    lookup: await pin(reach, target, port),
    method: request.method,
    path: target.pathname + target.search,
    headers: { ...endToEnd(request.headers), host: target.host },
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

/** Headers that concern one connection only. Source: RFC 9110, 7.6.1. */
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
  return Object.fromEntries(Object.entries(headers).filter(([name]) => !hopByHop.has(name)));
}

/** The addresses of a host that pip may reach, as the look-up that the connection will make. */
async function pin({ index, internet }: Reach, target: URL, port: number): Promise<LookupFunction> {
  const place = `${target.hostname}:${port}`;
  const isIndex = place === index;
  if (!isIndex && !(internet && (port === 80 || port === 443))) {
    throw new Refusal(`${place} may not be reached while packages are installed`);
  }
  const addresses = await lookUp(bare(target), { all: true });
  const hidden = addresses.find(({ address }) => !isPublicAddress(address));
  if (hidden && !isIndex) throw new Refusal(`${place} is not on the internet`);
  return (_hostname, options, done) => {
    const [first] = addresses;
    if (options.all) done(null, addresses);
    else done(null, first?.address ?? "", first?.family);
  };
}

/** A host's name or address, an IPv6 one without its brackets. */
function bare({ hostname }: URL): string {
  return hostname.replace(/^\[|\]$/g, "");
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
