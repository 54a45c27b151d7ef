import type { IncomingMessage, Server, ServerResponse } from "node:http";

/** Time limits: for a whole request body, for the silence of an upload, and for an answer that nobody reads. */
export interface BodyTimes {
  bodyMs: number;
  silenceMs: number;
  unreadMs: number;
}
/** Node's own limit for a whole request is 300 s too, but it would cut uploads. */
const bodyTimes: BodyTimes = { bodyMs: 300_000, silenceMs: 60_000, unreadMs: 30_000 };

/** Uploads of files by clients, and of artifacts and images by agents. */
const isUpload = ({ method, url = "" }: IncomingMessage): boolean =>
  method === "POST" ? /^\/files(\?|$)/.test(url) : method === "PUT" && url.startsWith("/agent/v1/");

/**
 * Ends a request whose body does not arrive in time, as Node ends one whose headers do not. An upload may
 * take as long as it needs while it goes on.
 */
export function endSlowBody(
  server: Server,
  request: IncomingMessage,
  { bodyMs, silenceMs }: BodyTimes = bodyTimes,
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
  let seen = socket.bytesRead;
  const endIfSilent = (): void => {
    if (socket.bytesRead === seen) return end();
    seen = socket.bytesRead;
    timer.refresh();
  };
  const timer = isUpload(request) ? setTimeout(endIfSilent, silenceMs) : setTimeout(end, bodyMs);
  request.once("close", () => clearTimeout(timer));
}

/** A streamed answer has fewer bytes in memory: it is read no faster than the client takes it. */
const unreadBytes = 1024 * 1024;

/**
 * Ends the connection of a client that takes nothing of a large answer for a time, because the whole
 * answer is in memory. Node's own timer starts again whenever the client takes a part.
 */
export function endUnreadAnswer(
  response: ServerResponse,
  { unreadMs }: BodyTimes = bodyTimes,
): void {
  response.setTimeout(unreadMs, () => {
    const { socket } = response;
    if (socket && socket.writableLength > unreadBytes) socket.destroy();
  });
}
