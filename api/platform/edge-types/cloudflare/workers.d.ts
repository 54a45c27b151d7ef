// The part of the edge runtime's module that the API uses. Source:
// https://developers.cloudflare.com/durable-objects/api/state/ and .../workers/runtime-apis/context/
// https://developers.cloudflare.com/workers/runtime-apis/streams/transformstream/ and .../web-crypto/

/** A stream that must pass exactly as many bytes. */
declare class FixedLengthStream {
  constructor(bytes: number);
  readonly readable: ReadableStream<Uint8Array>;
  readonly writable: WritableStream<Uint8Array>;
}

/** The runtime's own part of `crypto`. */
interface EdgeCrypto {
  readonly DigestStream: new (
    algorithm: "SHA-256",
  ) => WritableStream<Uint8Array> & { readonly digest: Promise<ArrayBuffer> };
}

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
    /** An object's one alarm, in epoch milliseconds; null while it has none or its handler runs. */
    readonly storage: {
      getAlarm(): Promise<number | null>;
      setAlarm(at: number): Promise<void>;
    };
  }

  export class DurableObject {
    constructor(state: DurableObjectState, env: unknown);
    protected readonly ctx: DurableObjectState;
    protected readonly env: unknown;
  }

  export class WorkerEntrypoint<Env> {
    protected readonly env: Env;
  }

  /** Lets the work of the current request continue after its answer, for at most 30 s. */
  export function waitUntil(work: Promise<unknown>): void;
}
