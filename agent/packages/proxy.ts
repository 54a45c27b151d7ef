import { createReadStream } from "node:fs";
import {
  createServer,
  type IncomingHttpHeaders,
  type IncomingMessage,
  request as httpRequest,
  type ServerResponse,
} from "node:http";
import { type Duplex, pipeline } from "node:stream";
import { describeError } from "../../shared/log-line.ts";
import type { PackageFile } from "./source.ts";
import { type Hosts, openTunnel, Refusal, requestOptions } from "./route.ts";

/** The hosts that pip may reach, and the files that the agent offers under `filesUrl`. */
export type Reach = Hosts & { readonly files: readonly PackageFile[] };

/** The URL of the agent's own files, with a name that nobody can register (RFC 6761). */
export const filesUrl = "http://packages.airlock.invalid/";
const filesHost = new URL(filesUrl).host;

/** A status line, which pip shows in its errors. */
type Answer = { readonly status: number; readonly text: string };

/**
 * An HTTP proxy without a port: it serves the connections that it is given. route.ts decides which
 * hosts it reaches.
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
  const target = URL.parse(request.url ?? "");
  if (target?.protocol !== "http:") throw new Refusal("not a request to a proxy");
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
