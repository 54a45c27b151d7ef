import type { RouteDeps } from "../deps.ts";
import { AppError } from "../errors.ts";

/** The event streams that are open at this process. */
export interface OpenStreams {
  /**
   * Counts a stream until it ends. Each API key has a count; without keys, all clients share one.
   *
   * @returns a function that ends the stream; safe to call twice.
   * @throws AppError 429 when `max_event_streams` are open.
   */
  begin(keyId: string | null | undefined): () => void;
}

/** Bounds the open streams of a client, because each costs memory and a connection. */
export function openStreams({ config, processMetrics }: RouteDeps): OpenStreams {
  // On Workers, the end of a stream may go unnoticed, so only the platform's own limits apply.
  const most = processMetrics ? config.max_event_streams : Infinity;
  const open = new Map<string, number>();
  const change = (holder: string, by: 1 | -1): void => {
    const streams = (open.get(holder) ?? 0) + by;
    if (streams > 0) open.set(holder, streams);
    else open.delete(holder);
  };
  return {
    begin(keyId) {
      const holder = keyId ?? "";
      if ((open.get(holder) ?? 0) >= most) {
        const whose = holder === "" ? "this service" : "this API key";
        const detail = `${most} event streams of ${whose} are open (max_event_streams): close some, or poll GET /jobs/{id}/logs.`;
        throw new AppError("rate_limited", detail, {}, { "Retry-After": "10" });
      }
      change(holder, 1);
      let hasEnded = false;
      return () => {
        if (!hasEnded) change(holder, -1);
        hasEnded = true;
      };
    },
  };
}

/** Passes events on, and calls `end` after the last one or when the reader stops. */
export async function* endingWith<T>(events: AsyncGenerator<T>, end: () => void) {
  try {
    yield* events;
  } finally {
    end();
  }
}
