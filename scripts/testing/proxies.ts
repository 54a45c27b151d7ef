import {
  Agent,
  createServer as createHttpServer,
  type IncomingMessage,
  request as httpRequest,
  type ServerResponse,
} from "node:http";
import { connect, createServer, type Socket } from "node:net";
import { buffer } from "node:stream/consumers";
import { listen } from "../../shared/testing/http.ts";

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
    passUntil(client, service, after.request);
    passUntil(service, client, after.answer);
  });

  function passUntil(from: Socket, to: Socket, limit = Infinity): void {
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

/** Closes a connection on which the service has sent nothing for this time. */
export function startIdleProxy(target: string, idleMs: number) {
  const server = createServer((client) => {
    const service = connect(Number(new URL(target).port), new URL(target).hostname);
    for (const socket of [client, service]) socket.on("error", () => {});
    client.on("close", () => service.destroySoon());
    service.on("close", () => client.destroySoon());
    service.setTimeout(idleMs, () => void (client.destroy(), service.destroy()));
    client.pipe(service).pipe(client);
  });
  return listen(server);
}

/** A request that a proxy has whole. */
interface Taken {
  readonly target: URL;
  readonly request: IncomingMessage;
  readonly body: Buffer;
  readonly response: ServerResponse;
  readonly agent: Agent;
}

/** Keeps its connections whatever the service says of their end. */
class KeepingAgent extends Agent {
  override keepSocketAlive(socket: Socket): boolean {
    return !!socket.unref();
  }
}

function ask({ target, request, body, response, agent }: Taken): Promise<IncomingMessage> {
  const headers = { ...request.headers };
  for (const name of ["connection", "transfer-encoding", "content-length"]) delete headers[name];
  const { method, url: path } = request;
  const ahead = httpRequest(target, { method, path, headers, agent }).end(body);
  response.on("close", () => !response.writableFinished && ahead.destroy());
  return new Promise((resolve, reject) => ahead.on("response", resolve).on("error", reject));
}

function pass(answer: IncomingMessage, response: ServerResponse): void {
  response.writeHead(answer.statusCode!, answer.headers);
  answer.pipe(response);
}

/** Sends a POST twice at once, and gives back the answer with this number. */
const twice = (chosen: 0 | 1) => async (taken: Taken) => {
  const answers = [ask(taken), ...(taken.request.method === "POST" ? [ask(taken)] : [])];
  const answer = answers[chosen] ?? answers[0]!;
  pass(await answer, taken.response);
  for (const other of answers) if (other !== answer) (await other).resume();
};

const manners = {
  "keeps its connections": async (taken: Taken) => pass(await ask(taken), taken.response),
  "buffers whole answers": async (taken: Taken) => {
    const answer = await ask(taken);
    const body = await buffer(answer);
    const { "transfer-encoding": _, ...headers } = answer.headers;
    taken.response.writeHead(answer.statusCode!, headers).end(body);
  },
  "sends a POST twice and gives back the first answer": twice(0),
  "sends a POST twice and gives back the second answer": twice(1),
  "loses a connection when an answer to a POST begins, and sends it again": async (
    taken: Taken,
  ) => {
    if (taken.request.method === "POST") (await ask(taken)).destroy();
    pass(await ask(taken), taken.response);
  },
  "speaks HTTP/1.0": ({ target, request, body }: Taken) => {
    const service = connect(Number(target.port), target.hostname);
    const { connection: _, "transfer-encoding": __, ...headers } = request.headers;
    const fields = { ...headers, connection: "close", "content-length": body.length };
    const lines = Object.entries(fields).map(([name, value]) => `${name}: ${String(value)}`);
    service.write(
      `${[`${request.method} ${request.url} HTTP/1.0`, ...lines].join("\r\n")}\r\n\r\n`,
    );
    service.write(body);
    service.once("data", (head) => head.write("HTTP/1.0"));
    service.pipe(request.socket);
    request.socket.on("close", () => service.destroy());
    service.on("error", () => request.socket.destroy());
  },
} satisfies Record<string, (taken: Taken) => unknown>;

type Manner = keyof typeof manners;
export const mannerNames = Object.keys(manners) as Manner[];

/** A proxy that treats requests as some in front of services do. It sends nothing again that fails. */
export async function startManneredProxy(url: string, manner: Manner) {
  const connections = new Set<Socket>();
  const agent = new KeepingAgent({ keepAlive: true });
  agent.on("free", (socket: Socket) => connections.add(socket));
  const server = createHttpServer((request, response) => {
    void buffer(request)
      .then((body) => manners[manner]({ target: new URL(url), request, response, agent, body }))
      .catch(() => response.destroy());
  });
  return { ...(await listen(server)), connections };
}
