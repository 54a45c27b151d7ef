import type { Context, MiddlewareHandler } from "hono";
import { matchedRoutes } from "hono/route";
import { ArtifactOutage, type Deps } from "../deps.ts";
import { isStoreOutage } from "../store/outage.ts";
import type { AppEnv } from "./context.ts";

/** Counts every answer in the process's metrics, if the platform has them. */
export function measure({ processMetrics, now }: Deps): MiddlewareHandler<AppEnv> {
  return async (c, next) => {
    if (!processMetrics) return next();
    const startedAt = now();
    await next();
    const { method } = c.req;
    const seconds = (now() - startedAt) / 1000;
    processMetrics.answered({ method, route: routeOf(c), status: c.res.status, seconds });
    if (c.error instanceof ArtifactOutage) processMetrics.storeFailed("artifacts");
    else if (c.error && isStoreOutage(c.error)) processMetrics.storeFailed("database");
  };
}

/** The endpoint's path as declared, which limits the number of series to the number of endpoints. */
function routeOf(c: Context): string {
  const path = matchedRoutes(c).findLast((route) => !route.path.endsWith("*"))?.path;
  return path?.replaceAll(/:(\w+)(\{[^}]*\})?/g, "{$1}") ?? "none";
}
