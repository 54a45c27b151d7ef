import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { Duplex } from "node:stream";
import { getRequestListener, RequestError } from "@hono/node-server";
import type { Deps } from "../deps.ts";
import { AppError, errorStatus, errorTitles, problemOf } from "../errors.ts";
import { securityHeaderFields } from "../http/security-headers.ts";
import { type BodyTimes, endSlowBody, endUnreadAnswer } from "./slow-bodies.node.ts";

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
  const listener = getRequestListener(fetch, { errorHandler });
  const handle = (request: IncomingMessage, response: ServerResponse) => {
    if (hasHosts(request)) return sendRefusal(response);
    endSlowBody(server, request, times);
    endUnreadAnswer(response, times);
    void listener(request, response);
  };
  /** Node takes the first of several; RFC 9112, 3.2 asks for 400. */
  function sendRefusal(response: ServerResponse): void {
    const { refusal, headers, body } = refuse(new RequestError("it has more than one Host header"));
    response.writeHead(errorStatus[refusal.code], Object.fromEntries(headers)).end(body);
  }
  // The app refuses a request without Host. An unknown Expect header is ignored. `endSlowBody` stands for
  // Node's time limit of a request.
  const options = { requireHostHeader: false, headersTimeout: 60_000, requestTimeout: 0 };
  const server = createServer(options, handle);
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

function hasHosts({ rawHeaders }: IncomingMessage): boolean {
  const names = rawHeaders.filter((_, i) => i % 2 === 0);
  return names.filter((name) => name.toLowerCase() === "host").length > 1;
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
