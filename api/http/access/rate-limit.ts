import type { MiddlewareHandler } from "hono";
import { rateLimiter } from "hono-rate-limiter";
import type { Config } from "../../../shared/config/config.ts";
import type { Deps } from "../../deps.ts";
import { clientNetwork } from "./client-network.ts";
import { AppError } from "../../errors.ts";
import type { AppEnv } from "../context.ts";
import { isHealthPath } from "../health-paths.ts";
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
 * Counts requests per accepted API key, else per client (`clientNetwork`): `api_rate_limit_*`. Answers
 * carry `RateLimit-*`, and refusals also `Retry-After`. /health and its probes are exempt. Agents are
 * exempt because their routes are registered first.
 */
export function rateLimit(deps: Deps): MiddlewareHandler<AppEnv> {
  const { config, clientAddress } = deps;
  const { api_rate_limit_requests: limit, api_rate_limit_window_seconds: windowS } = config;
  const windowMs = windowS * 1000;
  return rateLimiter<AppEnv>({
    limit,
    windowMs,
    ...rateStore(deps, { limit, windowMs }),
    standardHeaders: "draft-6",
    keyGenerator: (c) => c.get("caller")?.keyId ?? clientNetwork(clientAddress(c)),
    skip: (c) => counted.has(c.req.raw) || !isRateLimited(c.req.path, config),
    handler: () => {
      throw new AppError(
        "rate_limited",
        `More than ${limit} requests in ${windowS} s; wait for the seconds that Retry-After says.`,
      );
    },
  });
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
