import { once } from "node:events";
import { rm } from "node:fs/promises";
import { connect, createServer, type Server, type Socket } from "node:net";

/** An address in front of a real engine that can go away and come back. */
export type EngineProxy = AsyncDisposable & {
  readonly host: string;
  /** Cuts all connections; nobody listens any more. */
  readonly cut: () => Promise<void>;
  readonly restore: () => Promise<void>;
};

export async function startEngineProxy(
  engineHost: string,
  socketPath: string,
): Promise<EngineProxy> {
  const sockets = new Set<Socket>();
  let server: Server | undefined;

  function link(from: Socket, to: Socket): void {
    sockets.add(from);
    from
      .on("error", () => {})
      .on("close", () => {
        sockets.delete(from);
        to.destroy();
      });
    from.pipe(to);
  }

  async function restore(): Promise<void> {
    server = createServer({ allowHalfOpen: true }, (client) => {
      const { protocol, hostname, port, pathname } = new URL(engineHost);
      const engine =
        protocol === "unix:" ? connect(pathname) : connect(Number(port || 2375), hostname);
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
  return { host: `unix://${socketPath}`, cut, restore, [Symbol.asyncDispose]: cut };
}
