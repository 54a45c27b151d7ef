import { connect } from "node:net";

/**
 * Sends bytes that need not be HTTP, and gives all that comes back until the server closes.
 * With `hangUp` the client ends its side at once, as it must where the bytes are no whole request.
 */
export function sendRaw(url: string, bytes: string | Uint8Array, hangUp = false): Promise<string> {
  const { hostname, port } = new URL(url);
  return new Promise((resolve, reject) => {
    const socket = connect(Number(port), hostname);
    let answer = "";
    socket.setTimeout(60_000, () => socket.destroy(new Error(`no end, after ${answer}`)));
    socket.on("data", (part: Buffer) => (answer += part.toString("latin1")));
    socket.on("close", () => resolve(answer));
    socket.on("error", (error: NodeJS.ErrnoException) => {
      if (error.code !== "ECONNRESET" && error.code !== "EPIPE") reject(error);
    });
    if (hangUp) socket.end(bytes);
    else socket.write(bytes);
  });
}

/** The status of an HTTP answer as it came over the wire; undefined where none came. */
export function statusOf(answer: string): number | undefined {
  const status = /^HTTP\/1\.1 (\d{3}) /.exec(answer)?.[1];
  return status === undefined ? undefined : Number(status);
}
