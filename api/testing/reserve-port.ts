import { randomInt } from "node:crypto";
import { once } from "node:events";
import { createServer, type Server } from "node:net";

/** Below the range from which Linux serves who asks for any port, so that none of them gets it meanwhile. */
const FIRST = 20_000;
const COUNT = 10_000;

/**
 * A port of this address for a server that has to come back at the same one, or that cannot say which it
 * got. No other test gets it as long as this process lives.
 */
export async function reservePort(host = "127.0.0.1"): Promise<number> {
  for (;;) {
    const port = FIRST + randomInt(COUNT);
    const reservation = await listen({ path: `\0airlock-port-${port}` });
    if (!reservation) continue;
    // The kernel frees an abstract socket however its owner dies.
    reservation.unref();
    const listener = await listen({ host, port });
    if (!listener) continue;
    listener.close();
    await once(listener, "close");
    return port;
  }
}

/** Undefined where that place is taken. */
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
