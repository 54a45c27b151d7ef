import { once } from "node:events";
import { rm } from "node:fs/promises";
import { connect, createServer, type Server, type Socket } from "node:net";

/** A proxy in front of a real engine that can go away and come back. */
export type EngineProxy = AsyncDisposable & {
  readonly host: string;
  /** Requests to the engine so far, such as "POST /containers/create". */
  readonly requests: readonly string[];
  /** Bytes that came from the engine so far. */
  readonly bytesOut: () => number;
  /** Cuts all connections and stops listening. */
  readonly cut: () => Promise<void>;
  readonly restore: () => Promise<void>;
};

export async function startEngineProxy(
  engineHost: string,
  socketPath: string,
): Promise<EngineProxy> {
  const sockets = new Set<Socket>();
  const requests: string[] = [];
  let bytesOut = 0;
  let server: Server | undefined;

  function link(from: Socket, to: Socket): void {
    sockets.add(from);
    from
      .on("error", () => {})
      .on("close", () => {
        sockets.delete(from);
        // A connection that ended well may still have bytes for a side that reads slowly.
        if (!from.readableEnded) to.destroy();
      });
    from.pipe(to);
  }

  /** A head, or at least its beginning, arrives in one piece. */
  function note(chunk: Buffer): void {
    const head = /^([A-Z]+) ([^ ?]+)\S* HTTP\/1/.exec(chunk.toString("latin1", 0, 4096));
    if (head) requests.push(`${head[1]} ${head[2]}`);
  }

  async function restore(): Promise<void> {
    server = createServer({ allowHalfOpen: true }, (client) => {
      const { protocol, hostname, port, pathname } = new URL(engineHost);
      const engine =
        protocol === "unix:" ? connect(pathname) : connect(Number(port || 2375), hostname);
      client.on("data", note);
      engine.on("data", (chunk: Buffer) => (bytesOut += chunk.length));
      link(client, engine);
      link(engine, client);
    }).listen(socketPath);
    await once(server, "listening");
  }

  async function cut(): Promise<void> {
    server?.close();
    for (const socket of sockets) socket.destroy();
    await rm(socketPath, { force: true });
  }

  await restore();
  const host = `unix://${socketPath}`;
  return { host, requests, bytesOut: () => bytesOut, cut, restore, [Symbol.asyncDispose]: cut };
}
