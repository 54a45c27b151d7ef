// The part of the edge runtime's module that the API uses. Source:
// https://developers.cloudflare.com/durable-objects/api/state/ and .../workers/runtime-apis/context/
declare module "cloudflare:workers" {
  export interface ServerSocket {
    readonly readyState: number;
    send(message: string): void;
    close(code?: number): void;
  }

  export interface DurableObjectState {
    /** Accepts a socket for an object that may sleep while it is open; at most 10 tags. */
    acceptWebSocket(socket: ServerSocket, tags: string[]): void;
    getWebSockets(tag: string): ServerSocket[];
  }

  export class DurableObject {
    constructor(state: DurableObjectState, env: unknown);
    protected readonly ctx: DurableObjectState;
  }

  export class WorkerEntrypoint<Env> {
    protected readonly env: Env;
  }

  /** Lets the work of the current request continue after its answer, for at most 30 s. */
  export function waitUntil(work: Promise<unknown>): void;
}
