import {
  createServer,
  type IncomingMessage,
  request as httpRequest,
  type ServerResponse,
} from "node:http";
import { listen, type Listening } from "./listen.ts";

/** What becomes of an answer of the service on its way to the client. */
export type Hook = (
  answer: IncomingMessage,
  response: ServerResponse,
  request: IncomingMessage,
) => void;

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
