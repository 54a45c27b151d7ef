import { once } from "node:events";
import type { AddressInfo, Server, Socket } from "node:net";

/** A server of a test's own, on 127.0.0.1. */
export type Listening = AsyncDisposable & {
  readonly port: number;
  readonly url: string;
  /** Breaks all connections that are open. */
  readonly hangUp: () => void;
};

/** Has a server listen on a port, by default one that the system chooses, until it is disposed of. */
export async function listen(server: Server, wanted = 0): Promise<Listening> {
  const open = new Set<Socket>();
  server.on("connection", (socket: Socket) => {
    open.add(socket.on("close", () => open.delete(socket)));
  });
  await once(server.listen(wanted, "127.0.0.1"), "listening");
  const { port } = server.address() as AddressInfo;
  const hangUp = (): void => {
    for (const socket of open) socket.destroy();
  };
  return {
    port,
    url: `http://127.0.0.1:${port}`,
    hangUp,
    [Symbol.asyncDispose]: async () => {
      server.close();
      hangUp();
      await once(server, "close");
    },
  };
}
