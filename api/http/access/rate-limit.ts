import type { MiddlewareHandler } from "hono";
import { rateLimiter, type RateLimitInfo } from "hono-rate-limiter";
import type { Config } from "../../../shared/config/config.ts";
import type { Deps } from "../../deps.ts";
import { clientNetwork } from "./client-network.ts";
import { AppError } from "../../errors.ts";
import type { AppEnv } from "../context.ts";
import { isHealthPath } from "../health-paths.ts";
import { isStoreOutage } from "../../store/outage.ts";
import { findTenant } from "../../store/tenants.ts";
import { rateStore } from "./rate-store.ts";

const counted = new WeakSet<Request>();

/** Marks an internal request on behalf of a request that the rate limit has already counted. */
export function alreadyCounted(request: Request): Request {
  counted.add(request);
  return request;
}

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
    if (!isRateLimited(c.req.path, config) || counted.has(c.req.raw)) return next();
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
