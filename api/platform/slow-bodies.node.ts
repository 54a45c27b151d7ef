import type { IncomingMessage, Server } from "node:http";

/** Time limits: for a whole request body, and for the silence of an upload. */
export interface BodyTimes {
  bodyMs: number;
  silenceMs: number;
}
/** Node's own limit for a whole request is 300 s too, but it would cut uploads. */
const bodyTimes: BodyTimes = { bodyMs: 300_000, silenceMs: 60_000 };

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
