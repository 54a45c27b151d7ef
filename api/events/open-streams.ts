import type { Deps } from "../deps.ts";
import { AppError } from "../errors.ts";

/** The event streams that are open at this process. */
export interface OpenStreams {
  /**
   * Counts a stream from its beginning to its end, for an API key or, without keys, for everybody.
   *
   * @returns what ends it; safe to call twice.
   * @throws AppError 429 when `max_event_streams` are open.
   */
  begin(key: string | undefined): () => void;
}

/** An open stream costs memory and a connection, which no client may use up. */
export function openStreams({ config, processMetrics }: Deps): OpenStreams {
  // On Workers, a stream may end untold; the platform bounds what an isolate serves.
  const most = processMetrics ? config.max_event_streams : Infinity;
  const open = new Map<string, number>();
  const change = (holder: string, by: 1 | -1): void => {
    const streams = (open.get(holder) ?? 0) + by;
    if (streams > 0) open.set(holder, streams);
    else open.delete(holder);
  };
  return {
    begin(key) {
      const holder = key ?? "";
      if ((open.get(holder) ?? 0) >= most) {
        const whose = key === undefined ? "this service" : "this API key";
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

/** Events whose stream was begun; it ends with them. */
export async function* endingWith<T>(events: AsyncGenerator<T>, end: () => void) {
  try {
    yield* events;
  } finally {
    end();
  }
}
