import { once } from "node:events";
import { createServer, request as httpRequest } from "node:http";
import type { AddressInfo } from "node:net";

/** A way to a service on which the answers to requests with this path wait for `release`. */
export async function startHoldingProxy(target: string, path: RegExp) {
  const held = Promise.withResolvers<void>();
  const released = Promise.withResolvers<void>();
  const server = createServer((request, response) => {
    const { method, headers, url = "" } = request;
    const on = httpRequest(new URL(url, target), { method, headers }, (answer) => {
      const pass = (): void => {
        response.writeHead(answer.statusCode ?? 502, answer.headers);
        answer.pipe(response);
      };
      if (!path.test(url)) return pass();
      held.resolve();
      void released.promise.then(pass);
    });
    request.pipe(on);
  });
  await once(server.listen(0, "127.0.0.1"), "listening");
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    /** Resolves once the service has answered such a request. */
    held: held.promise,
    release: released.resolve,
    async [Symbol.asyncDispose]() {
      released.resolve();
      server.closeAllConnections();
      server.close();
      await once(server, "close");
    },
  };
}
