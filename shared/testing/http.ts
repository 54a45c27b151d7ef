import { once } from "node:events";
import {
  createServer,
  type IncomingMessage,
  request as httpRequest,
  type ServerResponse,
} from "node:http";
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

/** What becomes of an answer of the service on its way to the client. */
type Hook = (answer: IncomingMessage, response: ServerResponse, request: IncomingMessage) => void;

export const pass: Hook = (answer, response) => {
  response.writeHead(answer.statusCode ?? 502, answer.headers);
  answer.pipe(response);
};

/** A proxy to a service; a hook gets each answer. */
export function startHttpProxy(target: string, hook: Hook): Promise<Listening> {
  const server = createServer((request, response) => {
    const { method, headers, url = "" } = request;
    const ahead = httpRequest(new URL(url, target), { method, headers }, (answer) => {
      // The service may break off.
      answer.on("error", () => response.destroy());
      hook(answer, response, request);
    });
    ahead.on("error", () => response.destroy());
    request.pipe(ahead);
  });
  return listen(server);
}
