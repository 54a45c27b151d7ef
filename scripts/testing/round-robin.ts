import { once } from "node:events";
import { connect, createServer, type Socket } from "node:net";
import { listen, type Listening } from "../../shared/testing/listen.ts";

/** A load balancer of connections: each goes to the next server that takes it. */
export function startRoundRobin(ports: readonly number[]): Promise<Listening> {
  let turn = 0;

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
      upstream.on("close", () => client.destroySoon());
      client.on("close", () => upstream.destroySoon());
      client.pipe(upstream).pipe(client);
    });
  });
  return listen(server);
}

/** If one side ends, the other does; its client sees why. */
const keep = (socket: Socket): Socket => socket.on("error", () => {});
