import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import { isIP, type Socket } from "node:net";
import type { Duplex } from "node:stream";
import { getRequestListener, type HttpBindings, RequestError } from "@hono/node-server";
import type { Context } from "hono";
import { freed } from "../../shared/process/parts.node.ts";
import { addressesOf } from "../../shared/process/public-address.node.ts";
import type { Deps } from "../deps.ts";
import { AppError, errorStatus, errorTitles, problemOf } from "../errors.ts";
import { securityHeaderFields } from "../http/context.ts";

type Fetch = Parameters<typeof getRequestListener>[0];

/** An HTTP server that answers malformed requests with the app's problem details. */
export function httpServer(
  fetch: Fetch,
  { log, newId }: Pick<Deps, "log" | "newId">,
  times?: BodyTimes,
): Server {
  const refuse = (error: unknown): { refusal: AppError; headers: Headers; body: string } => {
    const refusal = asRefusal(error);
    const correlationId = newId();
    log.with({ correlationId }).info("refused: {reason}", { reason: error });
    const body = JSON.stringify(problemOf(refusal, correlationId));
    const headers = new Headers({
      ...securityHeaderFields,
      "Content-Type": "application/problem+json",
      "Content-Length": String(Buffer.byteLength(body)),
      "X-Correlation-ID": correlationId,
      Connection: "close",
    });
    return { refusal, headers, body };
  };

  const errorHandler = (error: unknown): Response => {
    const { refusal, headers, body } = refuse(error);
    return new Response(body, { status: errorStatus[refusal.code], headers });
  };
  // Health checks of proxies are HTTP/1.0 without Host.
  const listener = getRequestListener(withOwnBody(fetch), { errorHandler, hostname: "localhost" });
  const handle = (request: IncomingMessage, response: ServerResponse) => {
    inTurn.add(request, response);
    joinSmallParts(request);
    const hosts = countHosts(request);
    if (hosts > 1 || (hosts === 0 && request.httpVersion !== "1.0")) {
      return sendRefusal(response, hosts === 0 ? "no Host header" : "more than one Host header");
    }
    // Node's parser refuses a list of encodings that does not end with `chunked`.
    const coding = request.headers["transfer-encoding"]?.toLowerCase() ?? "";
    const isPlain = coding === "chunked" && request.httpVersion !== "1.0";
    if (/(^|,\s*)chunked$/.test(coding) && !isPlain) {
      return sendRefusal(response, "a Transfer-Encoding that is not just chunked, or in HTTP/1.0");
    }
    endSlowBody(server, request, response, times);
    endUnreadAnswer(response, times);
    void listener(request, response);
  };
  /** Node takes the first of several hosts; RFC 9112, 3.2 asks for 400. What a proxy may read otherwise is refused, too. */
  function sendRefusal(response: ServerResponse, what: string): void {
    const { refusal, headers, body } = refuse(new RequestError(`it has ${what}`));
    response.writeHead(errorStatus[refusal.code], Object.fromEntries(headers)).end(body);
  }
  // `handle` refuses a request without Host. An unknown Expect header is ignored. `endSlowBody` stands for
  // Node's time limit of a request.
  const options = {
    requireHostHeader: false,
    headersTimeout: 60_000,
    requestTimeout: 0,
    // Longer than the minute for which proxies keep idle connections. A POST that meets a closing connection is lost,
    // because a proxy repeats only safe requests.
    keepAliveTimeout: 120_000,
  };
  const server = createServer(options, handle);
  const inTurn = takeInTurn(server, times);
  server.on("checkExpectation", handle);
  server.on("clientError", (error: NodeJS.ErrnoException, socket: Duplex) => {
    if (error.code === "ECONNRESET" || !socket.writable) return void socket.destroy();
    const { refusal, headers, body } = refuse(error);
    const fields = [...headers].map(([name, value]) => `${name}: ${value}\r\n`).join("");
    const status = `${errorStatus[refusal.code]} ${errorTitles[refusal.code]}`;
    socket.end(`HTTP/1.1 ${status}\r\n${fields}\r\n${body}`);
  });
  return server;
}

/** Gives the app the body of an upload as it comes. The listener's own body copies each part, and doubles the cost. */
function withOwnBody(fetch: Fetch): Fetch {
  return (request, env) => {
    const { incoming } = env as HttpBindings;
    if (isUpload(incoming)) {
      const parts = incoming.iterator({ destroyOnReturn: false }) as AsyncIterable<Uint8Array>;
      Object.defineProperty(request, "body", { value: ReadableStream.from(parts) });
    }
    return fetch(request, env);
  };
}

/** Requests that came before the answer to the one before them leave this time to other clients' requests. */
const betweenPipelinedMs = 5;

/**
 * Connections whose client still sends the body of an answered request. However many there are, they take one part, of
 * 64 KiB at most, each millisecond.
 */
let dropping = 0;

/**
 * Takes the requests of a connection one after the other: the bytes after a request wait until that request is
 * answered. Node would parse them at once, and 64 KiB become up to 3,600 requests of 4 KB each.
 */
function takeInTurn(server: Server, { restMs }: BodyTimes = bodyTimes) {
  const unanswered = new WeakMap<Socket, IncomingMessage>();
  server.on("connection", (connection: Socket) => {
    const socket = freed(connection);
    const [parse] = socket.listeners("data") as [(bytes: Buffer) => void];
    let body: ReturnType<typeof followBody> | undefined;
    let isInHead = false;
    socket.off("data", parse);
    const endOfPiece = (bytes: Buffer, at: number): number => {
      if (body) return body.endIn(bytes, at);
      // The first bytes of a part may end a head that began in the part before.
      if (isInHead && at === 0) return headEnd.length - 1;
      const start = isInHead ? at : skipBlankLines(bytes, at);
      return start > at ? start : at + toHeadEnd(bytes, at);
    };
    // A piece ends where a head may end. So each piece ends at most one head, and begins at most one request.
    socket.on("data", (bytes: Buffer) => {
      for (let at = 0; at < bytes.length;) {
        const last = unanswered.get(socket);
        if (last?.complete || socket.isPaused()) {
          socket.pause();
          socket.unshift(bytes.subarray(at));
          return;
        }
        const joined = body?.joinChunks(bytes, at);
        if (joined) {
          parse(joined.chunk);
          at = joined.end;
          continue;
        }
        const piece = bytes.subarray(at, endOfPiece(bytes, at));
        parse(piece);
        at += piece.length;
        const request = unanswered.get(socket);
        if (request && request !== last) {
          body = followBody(request);
          isInHead = false;
        } else if (!body) isInHead ||= skipBlankLines(piece, 0) === 0;
        if (body?.isOver()) body = undefined;
      }
      if (!body || unanswered.has(socket)) return;
      socket.pause();
      setTimeout(() => socket.resume(), dropping);
    });
  });
  return {
    add(request: IncomingMessage, response: ServerResponse): void {
      const { socket } = request;
      unanswered.set(socket, request);
      response.once("close", () => {
        unanswered.delete(socket);
        if (socket.isPaused()) setTimeout(() => socket.resume(), betweenPipelinedMs);
        else socket.resume();
        if (!request.complete && !socket.destroyed) dropRest(socket, request, restMs);
      });
    },
  };
}

function dropRest(socket: Socket, request: IncomingMessage, restMs: number): void {
  dropping++;
  const timer = setTimeout(() => socket.destroySoon(), restMs);
  // An answered request does not close with its connection.
  const end = (): void => {
    dropping--;
    clearTimeout(timer);
    request.off("close", end);
    socket.off("close", end);
  };
  request.on("close", end);
  socket.on("close", end);
}

/**
 * Finds the end of a body in its bytes, which come in parts. The parser takes what is before it in one piece: a piece
 * costs 5 µs, and a chunked body may have an empty line, where a head could end, in every four bytes.
 */
function followBody({ headers }: IncomingMessage) {
  let dataLeft = Number(headers["content-length"] ?? 0);
  let follows: "size" | "trailer" | "nothing" = headers["transfer-encoding"] ? "size" : "nothing";
  let line = "";
  const isOver = (): boolean => dataLeft === 0 && follows === "nothing";
  // What is not chunked as RFC 9112, 7.1 says is refused by the parser.
  const readLine = (part: string): void => {
    line = (line + part).slice(0, 20);
    if (!part.endsWith("\n")) return;
    if (follows === "trailer") {
      if (line === "\r\n") follows = "nothing";
    } else {
      const size = parseInt(line, 16);
      if (size > 0) dataLeft = size + "\r\n".length;
      else follows = "trailer";
    }
    line = "";
  };
  const isBetweenChunks = (): boolean => dataLeft === 0 && follows === "size" && line === "";
  const endIn = (bytes: Buffer, from: number): number => {
    let at = from;
    const isInChunk = !isBetweenChunks();
    while (at < bytes.length && !isOver()) {
      if (isInChunk && at > from && isBetweenChunks()) return at;
      const start = at;
      const lineEnd = dataLeft > 0 ? at + dataLeft : bytes.indexOf("\n", at) + 1;
      at = Math.min(lineEnd || bytes.length, bytes.length);
      if (dataLeft > 0) dataLeft -= at - start;
      else readLine(bytes.toString("latin1", start, at));
    }
    return at;
  };
  /**
   * The chunks that are whole in the bytes, as one. The parser takes 2 µs for a chunk, and five million of one byte can
   * come in a second. What is not written as here is left to the parser.
   */
  const joinChunks = (bytes: Buffer, from: number): { chunk: Buffer; end: number } | undefined => {
    if (!isBetweenChunks()) return undefined;
    let joined: Buffer | undefined;
    let size = 0;
    let end = from;
    let count = 0;
    for (; ; count++) {
      let at = end;
      let length = 0;
      for (let digit = hexDigit(bytes[at]); digit !== -1; digit = hexDigit(bytes[++at])) {
        length = length * 16 + digit;
      }
      const data = at + 2;
      const next = data + length + 2;
      if (length === 0 || next > bytes.length) break;
      if (!isLineEnd(bytes, at) || !isLineEnd(bytes, next - 2)) break;
      joined ??= Buffer.allocUnsafe(bytes.length - from);
      // A call costs as much as some 40 bytes of the loop.
      if (length > 40) size += bytes.copy(joined, size, data, data + length);
      else for (let n = 0; n < length; n++) joined[size++] = bytes[data + n]!;
      end = next;
    }
    if (!joined || count === 1) return undefined;
    const head = Buffer.from(`${size.toString(16)}\r\n`);
    return { chunk: Buffer.concat([head, joined.subarray(0, size), lineEnd]), end };
  };
  return { endIn, isOver, joinChunks };
}

const lineEnd = Buffer.from("\r\n");
const isLineEnd = (bytes: Buffer, at: number): boolean => bytes[at] === 13 && bytes[at + 1] === 10;

function hexDigit(c = 0): number {
  if (c >= 48 && c <= 57) return c - 48;
  const lower = c | 32;
  return lower >= 97 && lower <= 102 ? lower - 87 : -1;
}

/** Parts of a body that are smaller than this are joined. */
const joinedBytes = 16 * 1024;

/**
 * Joins small parts of a body. A client may send each byte as a chunk of its own, and each part costs 230 bytes of memory
 * and 40 µs on its way to the app.
 */
function joinSmallParts(request: IncomingMessage): void {
  const push = request.push.bind(request);
  const length = Number(request.headers["content-length"] ?? joinedBytes);
  let joined: Buffer | undefined;
  let size = 0;
  const pushJoined = (): boolean => {
    const part = joined?.subarray(0, size);
    joined = undefined;
    size = 0;
    return part === undefined || push(part);
  };
  request.push = (part: Buffer | null): boolean => {
    if (part === null || part.length >= joinedBytes) {
      pushJoined();
      return push(part);
    }
    const hasRoom = size + part.length <= joinedBytes || pushJoined();
    joined ??= Buffer.allocUnsafe(Math.min(joinedBytes, length));
    joined.set(part, size);
    size += part.length;
    return hasRoom;
  };
}

const headEnd = "\r\n\r\n";

/** A client may send empty lines before a request: RFC 9112, 2.2. */
function skipBlankLines(bytes: Buffer, from: number): number {
  let at = from;
  while (bytes[at] === 13 || bytes[at] === 10) at++;
  return at;
}

function toHeadEnd(bytes: Buffer, from: number): number {
  const at = bytes.indexOf(headEnd, Math.max(0, from - headEnd.length + 1));
  return at === -1 ? Infinity : at + headEnd.length - from;
}

function countHosts({ rawHeaders }: IncomingMessage): number {
  const names = rawHeaders.filter((_, i) => i % 2 === 0);
  return names.filter((name) => name.toLowerCase() === "host").length;
}

function asRefusal(error: unknown): AppError {
  if (error instanceof RequestError) {
    return new AppError("invalid_request", `The request is not valid: ${error.message}.`);
  }
  switch ((error as NodeJS.ErrnoException).code) {
    case "HPE_HEADER_OVERFLOW":
      return new AppError("headers_too_large", "The request's address and headers are too long.");
    case "ERR_HTTP_REQUEST_TIMEOUT":
      return new AppError("wait_timeout", "The request did not arrive in time.");
    case undefined:
      return new AppError("internal", "Something went wrong.");
    default:
      return new AppError("invalid_request", "The request is not valid HTTP.");
  }
}

/**
 * Time limits: for a whole request body, for each part of a large one, for the silence of an upload, for the rest of a body
 * whose request is answered, and for an answer that nobody reads.
 */
export interface BodyTimes {
  bodyMs: number;
  partMs: number;
  silenceMs: number;
  restMs: number;
  unreadMs: number;
}
/**
 * Node's own limit for a whole request is 300 s too, but it would cut uploads. `restMs` is as long as the time for the rest
 * of a body that is too large, because many clients read no answer until they have sent their body.
 */
const bodyTimes: BodyTimes = {
  bodyMs: 300_000,
  partMs: 30_000,
  silenceMs: 60_000,
  restMs: 30_000,
  unreadMs: 30_000,
};

/** Uploads of files by clients, and of artifacts and images by agents. */
const isUpload = ({ method, url = "" }: IncomingMessage): boolean =>
  method === "POST" ? /^\/files(\?|$)/.test(url) : method === "PUT" && url.startsWith("/agent/v1/");

/** A larger body takes room in memory, so it must bring so many bytes in each `partMs`. A line of 64 kB/s brings four times as many. */
const large = { bodyBytes: 1024 * 1024, partBytes: 480 * 1024 };

/**
 * Ends a request whose body does not arrive in time, as Node ends one whose headers do not. An upload may
 * take as long as it needs while it goes on.
 */
function endSlowBody(
  server: Server,
  request: IncomingMessage,
  response: ServerResponse,
  { bodyMs, partMs, silenceMs }: BodyTimes = bodyTimes,
): void {
  const { headers, socket } = request;
  if (headers["content-length"] === undefined && !headers["transfer-encoding"]) return;
  const end = (): void => {
    if (request.complete) return;
    const error = Object.assign(new Error("the request's body came too slowly"), {
      code: "ERR_HTTP_REQUEST_TIMEOUT",
    });
    server.emit("clientError", error, socket);
  };
  const began = socket.bytesRead;
  /** Ends it when less than `least` bytes have come since the time before. */
  const every = (ms: number, least: number, isMeant = () => true): NodeJS.Timeout => {
    let seen = began;
    const timer = setTimeout(() => {
      if (isMeant() && socket.bytesRead - seen < least) return end();
      seen = socket.bytesRead;
      timer.refresh();
    }, ms);
    return timer;
  };
  const timers: NodeJS.Timeout[] = [];
  if (isUpload(request)) timers.push(every(silenceMs, 1));
  else {
    timers.push(setTimeout(end, bodyMs));
    const announced = Number(headers["content-length"] ?? Infinity);
    const isLarge = (): boolean =>
      announced < Infinity || socket.bytesRead - began > large.bodyBytes;
    if (announced > large.bodyBytes) timers.push(every(partMs, large.partBytes, isLarge));
  }
  const endTimers = (): void => timers.forEach(clearTimeout);
  request.once("close", endTimers);
  response.once("close", endTimers);
}

/** A streamed answer has fewer bytes in memory: it is read no faster than the client takes it. */
const unreadBytes = 1024 * 1024;

/**
 * Ends the connection of a client that takes nothing of a large answer for a time, because the whole
 * answer is in memory. Node's own timer starts again whenever the client takes a part.
 */
function endUnreadAnswer(response: ServerResponse, { unreadMs }: BodyTimes = bodyTimes): void {
  response.setTimeout(unreadMs, () => {
    const { socket } = response;
    if (socket && socket.writableLength > unreadBytes) socket.destroy();
  });
}

/**
 * The client's address: the socket's address or, if that is one of the `trusted` proxies, the last
 * address in X-Forwarded-For that is not a trusted proxy. An entry that is no address ends the search,
 * because the client could have written everything before it.
 */
export function clientAddress(trusted: string[]): (c: Context) => string {
  const isProxy = addressesOf(trusted);
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
