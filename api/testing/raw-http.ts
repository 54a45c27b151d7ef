import { connect } from "node:net";

/**
 * Sends bytes that need not be HTTP, and returns everything received until the server closes.
 * With `hangUp` the client ends its side at once; it must do so if the bytes are no complete request.
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

/** The status of a raw HTTP answer; undefined if there was none. */
export function statusOf(answer: string): number | undefined {
  const status = /^HTTP\/1\.1 (\d{3}) /.exec(answer)?.[1];
  return status === undefined ? undefined : Number(status);
}
