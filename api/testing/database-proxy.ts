import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import { text } from "node:stream/consumers";
import { listen } from "../../shared/testing/http.ts";

/** What happens to a request in place of being passed on; `pass` passes it on, and returns the whole answer. */
export type Fault = (response: ServerResponse, pass: () => Promise<Answer>) => Promise<void>;

interface Answer {
  status: number;
  type: string;
  bytes: Uint8Array;
}

/** Passes requests on to a database's server, except for those that meet a fault. */
export async function startDatabaseProxy(target: string) {
  const faults: { fault: Fault; matches: (sent: string) => boolean }[] = [];
  const sent: string[] = [];
  async function passOn(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const body = await text(request);
    sent.push(body);
    const pass = async (): Promise<Answer> => {
      const answer = await fetch(`${target}${request.url}`, {
        method: request.method ?? "GET",
        headers: { "Content-Type": request.headers["content-type"] ?? "" },
        ...(body !== "" && { body }),
      });
      const type = answer.headers.get("Content-Type") ?? "";
      return { status: answer.status, type, bytes: await answer.bytes() };
    };
    const at = faults.findIndex(({ matches }) => matches(body));
    if (at >= 0) return faults.splice(at, 1)[0]!.fault(response, pass);
    answerWith(response, await pass());
  }
  const proxy = createServer((request, response) => {
    passOn(request, response).catch(() => response.destroy());
  });
  return {
    ...(await listen(proxy)),
    /** The bodies of all requests. */
    sent,
    /** The next request with this text meets the fault. */
    fail: (text: string, fault: Fault) =>
      void faults.push({ fault, matches: (body) => body.includes(text) }),
  };
}

export function answerWith(response: ServerResponse, { status, type, bytes }: Answer): void {
  response.writeHead(status, { "Content-Type": type, "Content-Length": bytes.length }).end(bytes);
}

export const faults = {
  lost: async (response, pass) => {
    await pass();
    response.destroy();
  },
  reset: async (response) => void response.socket!.resetAndDestroy(),
  half: async (response, pass) => {
    const { status, bytes } = await pass();
    response.writeHead(status, { "Content-Length": bytes.length });
    response.write(bytes.subarray(0, bytes.length / 2), () => response.destroy());
  },
  stalled: async (response, pass) => {
    const { status, bytes } = await pass();
    response.writeHead(status, { "Content-Length": bytes.length });
    response.write(bytes.subarray(0, bytes.length / 2));
  },
  slow: async (response, pass) => {
    await new Promise((resolve) => setTimeout(resolve, 5000));
    answerWith(response, await pass());
  },
  busy: async (response) => void response.writeHead(429).end("too many requests"),
} satisfies Record<string, Fault>;
