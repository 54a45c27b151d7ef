import { randomInt } from "node:crypto";
import { once } from "node:events";
import { createServer, type Server } from "node:net";

/** Below the range of ports that Linux picks itself, so that no other program gets the port. */
const FIRST = 20_000;
const COUNT = 10_000;

/**
 * Reserves a port for a server that must restart on the same port, or that cannot report its port. No
 * other test gets it while this process lives.
 */
export async function reservePort(host = "127.0.0.1"): Promise<number> {
  for (;;) {
    const port = FIRST + randomInt(COUNT);
    const reservation = await listen({ path: `\0airlock-port-${port}` });
    if (!reservation) continue;
    // The kernel frees an abstract socket when its owner ends in any way.
    reservation.unref();
    const listener = await listen({ host, port });
    if (!listener) continue;
    listener.close();
    await once(listener, "close");
    return port;
  }
}

/** Undefined if the port is taken. */
async function listen(
  place: { path: string } | { host: string; port: number },
): Promise<Server | undefined> {
  const server = createServer().listen(place);
  try {
    await once(server, "listening");
    return server;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "EADDRINUSE") return undefined;
    throw error;
  }
}
