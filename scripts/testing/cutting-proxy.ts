import { connect, createServer, type Socket } from "node:net";
import { listen } from "../../shared/testing/listen.ts";

/** Number of bytes after which it breaks. */
export type Cut = { answer?: number; request?: number };

/** A TCP proxy whose connections break where a test says. */
export interface CuttingProxy extends AsyncDisposable {
  readonly url: string;
  /** Breaks the next connections, each after so many bytes of its answers or requests, or never. */
  readonly cutNext: (...after: Cut[]) => void;
  /** How many connections it broke. */
  readonly cuts: () => number;
}

export async function startCuttingProxy(target: string): Promise<CuttingProxy> {
  let next: Cut[] = [];
  let cuts = 0;
  const server = createServer((client) => {
    const service = connect(Number(new URL(target).port), new URL(target).hostname);
    const after = next.shift() ?? {};
    const end = () => void (client.destroy(), service.destroy());
    for (const socket of [client, service]) socket.on("error", end).on("close", end);
    pass(client, service, after.request);
    pass(service, client, after.answer);
  });

  function pass(from: Socket, to: Socket, limit = Infinity): void {
    let left = limit;
    from.on("data", (bytes: Buffer) => {
      const isOver = bytes.length >= left;
      const whole = to.write(isOver ? bytes.subarray(0, left) : bytes, () => {
        if (isOver) from.destroy();
      });
      if (isOver) {
        cuts++;
        from.pause();
      } else if (!whole) {
        from.pause();
        to.once("drain", () => from.resume());
      }
      left -= bytes.length;
    });
    from.on("end", () => to.end());
  }

  const proxy = await listen(server);
  return {
    ...proxy,
    cutNext: (...after) => {
      next = after;
      // A kept-alive connection would not count as the next one.
      proxy.hangUp();
    },
    cuts: () => cuts,
  };
}

/** Closes a connection on which nothing came from the service for so long. */
export async function startIdleProxy(target: string, idleMs: number) {
  let cuts = 0;
  const server = createServer((client) => {
    const service = connect(Number(new URL(target).port), new URL(target).hostname);
    for (const socket of [client, service]) socket.on("error", () => {});
    client.on("close", () => service.destroySoon());
    service.on("close", () => client.destroySoon());
    service.setTimeout(idleMs, () => {
      cuts++;
      client.destroy();
      service.destroy();
    });
    client.pipe(service).pipe(client);
  });
  return { ...(await listen(server)), cuts: () => cuts };
}
