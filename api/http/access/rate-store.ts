import type { Store } from "hono-rate-limiter";
import type { Deps } from "../../deps.ts";
import { countHit } from "../../store/rate-windows.ts";
import type { AppEnv } from "../context.ts";

/** At most `limit` requests of a client in a window. */
export interface Limit {
  limit: number;
  windowMs: number;
}

/**
 * Chooses where requests are counted. A process with a database file serves alone and counts in memory.
 * Processes that share a database count there, with one statement per request. A client over its limit
 * causes no more statements until its window ends.
 */
export function rateStore(
  { config, db, now }: Deps,
  { limit, windowMs }: Limit,
): { store?: Store<AppEnv> } {
  const isFile = config.database_url?.startsWith("file:") ?? true;
  if (isFile) return {};
  const refusedUntil = new Map<string, number>();
  const store: Store<AppEnv> = {
    async increment(client) {
      const at = now();
      const end = refusedUntil.get(client) ?? 0;
      if (end > at) return { totalHits: limit + 1, resetTime: new Date(end) };
      const { hits, endsAt } = await countHit(db, { client, now: at, newEnd: at + windowMs });
      if (hits > limit) {
        forgetPast(refusedUntil, at);
        refusedUntil.set(client, endsAt);
      }
      return { totalHits: hits, resetTime: new Date(endsAt) };
    },
    // A request counts even if it is refused.
    decrement() {},
    resetKey() {},
  };
  return { store };
}

function forgetPast(ends: Map<string, number>, now: number): void {
  for (const [client, end] of ends) if (end <= now) ends.delete(client);
}
