import {
  createServer,
  type IncomingHttpHeaders,
  type IncomingMessage,
  type ServerResponse,
} from "node:http";
import { text } from "node:stream/consumers";
import { Webhook } from "standardwebhooks";
import { listen } from "../../shared/testing/http.ts";
import { WebhookEvent } from "../../shared/wire/webhooks.ts";

export const receiverSecret = `whsec_${Buffer.alloc(32, 7).toString("base64")}`;

/** A call that a receiver got, and the event in it. */
export interface Received {
  path: string;
  id: string;
  headers: IncomingHttpHeaders;
  body: string;
  event: WebhookEvent;
}

/** How a receiver answers; it may also break off or never end. */
export type Answering = (
  response: ServerResponse,
  call: Received,
  request: IncomingMessage,
) => void;

/** A receiver of webhooks on the loopback address. It verifies each call with the reference library. */
export async function startReceiver(
  answering: Answering = accept,
  port = 0,
  secret = receiverSecret,
) {
  const received: Received[] = [];
  let heard = Promise.withResolvers<void>();
  const receiver = {
    url: "",
    received,
    answering,
    /** Resolves when it has got this many calls. */
    async calls(count: number): Promise<Received[]> {
      while (received.length < count) await heard.promise;
      return received;
    },
    close: async (): Promise<void> => listening[Symbol.asyncDispose](),
  };
  const server = createServer((request, response) => {
    void text(request).then((body) => {
      const { headers } = request;
      const signed = headers as Record<string, string>;
      const event = WebhookEvent.parse(new Webhook(secret).verify(body, signed));
      const call = { path: request.url ?? "", id: signed["webhook-id"]!, headers, body, event };
      received.push(call);
      heard.resolve();
      heard = Promise.withResolvers();
      receiver.answering(response, call, request);
    });
  });
  const listening = await listen(server, port);
  receiver.url = listening.url;
  return receiver;
}
export type Receiver = Awaited<ReturnType<typeof startReceiver>>;

export const accept: Answering = (response) => response.writeHead(204).end();
export const answer =
  (status: number, headers: Record<string, string> = {}): Answering =>
  (response) =>
    response.writeHead(status, headers).end();
