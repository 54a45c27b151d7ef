import { once } from "node:events";
import { createServer } from "node:net";
import { OperatorError } from "../command/operator-error.ts";

/** Throws OperatorError if the API could not listen on `host` and `port`. */
export async function checkAddress(host: string, port: number): Promise<void> {
  const server = createServer().listen(port, host);
  try {
    await once(server, "listening");
  } catch (error) {
    throw new OperatorError(explain(host, port, error as NodeJS.ErrnoException));
  } finally {
    server.close();
  }
}

/**
 * The URL at which processes of this machine reach an API that listens at `url`: replaces a
 * wildcard address.
 */
export function localUrl(url: string): string {
  return url.replace("//0.0.0.0:", "//127.0.0.1:").replace("//[::]:", "//[::1]:");
}

function explain(host: string, port: number, error: NodeJS.ErrnoException): string {
  switch (error.code ?? "") {
    case "EADDRINUSE":
      return `port ${port} on ${host} is taken: stop the program that has it (ss -ltnp 'sport = :${port}' names it), or choose another: npm start -- --port ${port + 1}`;
    case "EACCES":
      return `no permission to listen on port ${port}: choose one above 1023: npm start -- --port 8080`;
    case "EADDRNOTAVAIL":
    case "ENOTFOUND":
      return `${host} is not an address of this machine: npm start -- --host 127.0.0.1`;
    default:
      return `cannot listen on ${host}, port ${port}: ${error.message}`;
  }
}
