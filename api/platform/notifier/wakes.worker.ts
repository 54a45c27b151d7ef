import { DurableObject, type ServerSocket } from "cloudflare:workers";
import { paced } from "./paced.ts";

/** The two ends of a connection; the runtime defines it. */
declare const WebSocketPair: new () => { 0: WebSocket; 1: ServerSocket };

/**
 * Whether a topic wakes the clients that follow one job. Such a topic has an object of its own, which wakes
 * them at most ten times a second.
 */
export const isOfFollowers = (topic: string): boolean => topic.startsWith("output:");
const restMs = 100;

/**
 * Passes wake-ups between isolates, which share no memory. Its only state is a socket for each waiter,
 * tagged with the waiter's topics. It sleeps while nothing happens. A lost wake-up does no harm: waiters
 * query the database at least every `backstopMs`.
 */
export class Wakes extends DurableObject {
  #tellFollowers: (() => void) | undefined;

  /** Accepts a waiter's socket. The query has `topic=…` once for each topic. */
  fetch(request: Request): Response {
    const { 0: webSocket, 1: ours } = new WebSocketPair();
    this.ctx.acceptWebSocket(ours, new URL(request.url).searchParams.getAll("topic"));
    return new Response(null, { status: 101, webSocket } as ResponseInit);
  }

  wake(topic: string): void {
    if (!isOfFollowers(topic)) return this.#send(topic);
    this.#tellFollowers ??= paced(() => this.#send(topic), restMs);
    this.#tellFollowers();
  }

  #send(topic: string): void {
    for (const socket of this.ctx.getWebSockets(topic)) {
      if (socket.readyState === open) socket.send("");
    }
  }

  /** The runtime requires this handler for accepted sockets, although nobody sends messages. */
  webSocketMessage(): void {}
}

const open = 1;
