import { DurableObject, type ServerSocket } from "cloudflare:workers";

/** Made by the runtime: the two ends of a connection. */
declare const WebSocketPair: new () => { 0: WebSocket; 1: ServerSocket };

/**
 * Passes wake-ups on between isolates, which share no memory. All that it knows is who listens: a
 * socket for each waiter, tagged with its topics. It sleeps while nothing happens, and whatever it
 * loses the waiters' backstop finds in the database.
 */
export class Wakes extends DurableObject {
  /** Takes a waiter's socket on: `?topic=…`, once for each topic. */
  fetch(request: Request): Response {
    const { 0: webSocket, 1: ours } = new WebSocketPair();
    this.ctx.acceptWebSocket(ours, new URL(request.url).searchParams.getAll("topic"));
    return new Response(null, { status: 101, webSocket } as ResponseInit);
  }

  wake(topic: string): void {
    for (const socket of this.ctx.getWebSockets(topic)) {
      if (socket.readyState === open) socket.send("");
    }
  }

  /** Sockets that are taken on this way need it, though nobody sends anything. */
  webSocketMessage(): void {}
}

const open = 1;
