import { lt, sql } from "drizzle-orm";
import type { MiddlewareHandler } from "hono";
import { rateLimiter, type RateLimitInfo, type Store } from "hono-rate-limiter";
import type { Config } from "../../shared/config/config.ts";
import type { Deps } from "../deps.ts";
import { AppError } from "../errors.ts";
import { type Database, isStoreOutage } from "../store/database.ts";
import { rateWindows } from "../store/schema.ts";
import { given, query, rowsQuery } from "../store/statement.ts";
import { findTenant } from "../tenants/sql.ts";
import { type AppEnv, isHealthPath } from "./context.ts";
import { clientNetwork } from "./identity.ts";

/** Whether requests of a path are counted. Only health requests are not. */
export function isRateLimited(path: string, config: Config): boolean {
  return config.api_rate_limit_enabled && !isHealthPath(path);
}

/**
 * Counts requests per accepted API key, else per client (`clientNetwork`): `api_rate_limit_*`; and those of
 * all keys of a tenant that has `max_requests`. Answers
 * carry `RateLimit-*`, and refusals also `Retry-After`. /health and its probes are exempt. Agents are
 * exempt because their routes are registered first.
 */
export function rateLimit(deps: Deps): MiddlewareHandler<AppEnv> {
  const { config, clientAddress } = deps;
  const { api_rate_limit_requests: limit, api_rate_limit_window_seconds: windowS } = config;
  const windowMs = windowS * 1000;
  const ofTenant = limitTenants(deps, windowMs);
  const ofKey = rateLimiter<AppEnv>({
    limit,
    windowMs,
    ...rateStore(deps, { limit, windowMs }),
    standardHeaders: "draft-6",
    keyGenerator: (c) => c.get("caller")?.keyId ?? clientNetwork(clientAddress(c)),
    handler: () => {
      throw new AppError(
        "rate_limited",
        `More than ${limit} requests in ${windowS} s; wait for the seconds that Retry-After says.`,
      );
    },
  });
  return async (c, next) => {
    if (!isRateLimited(c.req.path, config)) return next();
    return ofKey(c, async () => {
      await ofTenant(c, next);
    });
  };
}

/** A limit that was read is used for this long. */
const knownMs = 1000;

/** The headers of answers are about the key. */
function limitTenants(deps: Deps, windowMs: number): MiddlewareHandler<AppEnv> {
  const { db, now } = deps;
  const known = new Map<string, { readonly limit: number; readonly at: number }>();
  const limitOf = async (name: string): Promise<number> => {
    const last = known.get(name);
    if (last && last.at <= now() && now() < last.at + knownMs) return last.limit;
    try {
      const limit = (await findTenant(db, name))?.maxRequests ?? Infinity;
      known.set(name, { limit, at: now() });
      return limit;
    } catch (error) {
      // Pages about the interface need no database.
      if (isStoreOutage(error)) return last?.limit ?? Infinity;
      throw error;
    }
  };
  const limiter = rateLimiter<AppEnv>({
    windowMs,
    limit: (c) => limitOf(c.get("caller")!.tenant),
    ...rateStore(deps, { limit: Infinity, windowMs }),
    standardHeaders: false,
    keyGenerator: (c) => `tenant ${c.get("caller")!.tenant}`,
    handler: (c) => {
      const { limit, resetTime } = c.get("rateLimit" as never) as RateLimitInfo;
      const leftMs = resetTime ? resetTime.getTime() - now() : windowMs;
      throw new AppError(
        "rate_limited",
        `More than ${limit} requests of the tenant's keys in ${windowMs / 1000} s (max_requests); wait for the seconds that Retry-After says.`,
        {},
        { "Retry-After": String(Math.ceil(Math.min(Math.max(leftMs, 1), windowMs) / 1000)) },
      );
    },
  });
  return async (c, next) => {
    const caller = c.get("caller");
    if (!caller || (await limitOf(caller.tenant)) === Infinity) return next();
    return limiter(c, next);
  };
}

const joinsPerMinute = 30;

/** Counts attempts to join per client address, even without `api_rate_limit_enabled`, so that codes cannot be guessed. */
export function limitJoins(deps: Deps): MiddlewareHandler<AppEnv> {
  const limit = { limit: joinsPerMinute, windowMs: 60_000 };
  return rateLimiter<AppEnv>({
    ...limit,
    ...rateStore(deps, limit),
    standardHeaders: "draft-6",
    // Counted separately from the client's other requests.
    keyGenerator: (c) => `join ${clientNetwork(deps.clientAddress(c))}`,
    handler: () => {
      throw new AppError(
        "rate_limited",
        `More than ${joinsPerMinute} attempts to join in a minute; wait for the seconds that Retry-After says.`,
      );
    },
  });
}

/** At most `limit` requests of a client in a window. */
interface Limit {
  limit: number;
  windowMs: number;
}

/**
 * Chooses where requests are counted. A process with a database file serves alone and counts in memory.
 * Processes that share a database count there, with one statement per request. A client over its limit
 * causes no more statements until its window ends.
 */
function rateStore(
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
      const [window] = await countHit(db, { client, now: at, newEnd: at + windowMs });
      const { hits, endsAt } = window!;
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

const now = given("now");
const { client, hits, endsAt } = rateWindows;

/** Counts a request of a client. Returns the count of its window, and the window's end (epoch ms). */
const countHit = rowsQuery(
  query
    .insert(rateWindows)
    .values({ client: given("client"), hits: 1, endsAt: given("newEnd") })
    .onConflictDoUpdate({
      target: client,
      set: {
        hits: sql`case when ${endsAt} <= ${now} then 1 else ${hits} + 1 end`,
        endsAt: sql`case when ${endsAt} <= ${now} then excluded.ends_at else ${endsAt} end`,
      },
    })
    .returning({ hits, endsAt }),
);

export async function forgetWindowsBefore(db: Database, time: number): Promise<void> {
  await db.orm.delete(rateWindows).where(lt(endsAt, time));
}
