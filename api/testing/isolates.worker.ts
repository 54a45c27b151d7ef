import { WorkerEntrypoint } from "cloudflare:workers";
import type { Bucket } from "../platform/artifacts.worker.ts";
import type { WakesObjects } from "../platform/objects.worker.ts";

type Env = Record<string, { fetch(request: Request): Promise<Response> }> & {
  BUCKET: Bucket;
  WAKES: WakesObjects;
};

/** R2's message when it fails. Source: https://developers.cloudflare.com/r2/api/error-codes/ */
const internalError = "We encountered an internal error. Please try again. (10001)";
let isFailing = false;

/**
 * Proxy of the isolates of a test: passes `/<name>/…` to the worker bound under that name. It is also a
 * bucket, which fails between `/bucket/fails` and `/bucket/works`. `/wakes/<topic>` answers with a byte for
 * each wake-up that the topic's own Durable Object sends.
 */
export default class Isolates extends WorkerEntrypoint<Env> {
  async fetch(request: Request): Promise<Response> {
    const url = new URL(request.url);
    const [, name = "", ...path] = url.pathname.split("/");
    if (name === "bucket") {
      isFailing = path[0] === "fails";
      return new Response();
    }
    if (name === "wakes") return this.#wakes(path.join("/"));
    url.pathname = path.join("/");
    const forwarded = new Request(url, request);
    const client = request.headers.get("X-Test-Client");
    if (client !== null) forwarded.headers.set("CF-Connecting-IP", client);
    return this.env[name]!.fetch(forwarded);
  }

  async put(key: string, body: ReadableStream, options: { sha256?: string }): Promise<void> {
    this.#check("put");
    const bytes = new Uint8Array(await new Response(body).arrayBuffer());
    await this.env.BUCKET.put(key, bytes as never, options);
  }

  async get(...given: Parameters<Bucket["get"]>): Promise<{ body: ReadableStream } | null> {
    this.#check("get");
    const object = await this.env.BUCKET.get(...given);
    return object && { body: object.body };
  }

  async #wakes(topic: string): Promise<Response> {
    const { webSocket } = await this.env.WAKES.getByName(topic).fetch(
      `https://wakes/?${new URLSearchParams({ topic }).toString()}`,
      { headers: { Upgrade: "websocket" } },
    );
    if (!webSocket) throw new Error("no socket");
    webSocket.accept();
    const { readable, writable } = new TransformStream<Uint8Array, Uint8Array>();
    const writer = writable.getWriter();
    webSocket.addEventListener("message", () => void writer.write(new Uint8Array([0])));
    return new Response(readable);
  }

  #check(action: string): void {
    if (isFailing) throw new Error(`${action}: ${internalError}`);
  }
}
