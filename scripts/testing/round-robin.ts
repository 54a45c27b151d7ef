import { once } from "node:events";
import { connect, createServer, type AddressInfo, type Socket } from "node:net";

/** A load balancer of connections: each goes to the next server that takes it. */
export type RoundRobin = AsyncDisposable & { readonly url: string };

export async function startRoundRobin(ports: readonly number[]): Promise<RoundRobin> {
  const open = new Set<Socket>();
  let turn = 0;

  function keep(socket: Socket): Socket {
    open.add(socket);
    // What ends one side ends the other; why, its client sees.
    return socket.on("error", () => {}).on("close", () => open.delete(socket));
  }

  async function dial(): Promise<Socket | undefined> {
    for (const _ of ports) {
      const socket = keep(connect(ports[turn++ % ports.length]!, "127.0.0.1"));
      const isThere = await Promise.race([
        once(socket, "connect").then(
          () => true,
          () => false,
        ),
        once(socket, "close").then(() => false),
      ]);
      if (isThere) return socket;
    }
    return undefined;
  }

  const server = createServer((client) => {
    keep(client).pause();
    void dial().then((upstream) => {
      if (!upstream || client.destroyed) {
        client.destroy();
        upstream?.destroy();
        return;
      }
      upstream.on("close", () => client.destroy());
      client.on("close", () => upstream.destroy());
      client.pipe(upstream).pipe(client);
    });
  }).listen(0, "127.0.0.1");
  await once(server, "listening");
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    [Symbol.asyncDispose]: async () => {
      server.close();
      for (const socket of open) socket.destroy();
      await once(server, "close");
    },
  };
}
