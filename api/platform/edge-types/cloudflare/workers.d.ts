// What the API uses of the module that the edge runtime brings with it. Source:
// https://developers.cloudflare.com/durable-objects/api/state/ and .../workers/runtime-apis/context/
declare module "cloudflare:workers" {
  export interface ServerSocket {
    readonly readyState: number;
    send(message: string): void;
    close(code?: number): void;
  }

  export interface DurableObjectState {
    /** Takes a socket on for an object that may sleep while it is open; at most 10 tags. */
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

  /** Lets the current request's work go on after its answer, for 30 s at most. */
  export function waitUntil(work: Promise<unknown>): void;
}
