import type { MiddlewareHandler } from "hono";
import type { Deps } from "../deps.ts";
import type { AppEnv } from "./context.ts";

/**
 * Delays each answer until every earlier commit is on disk: what the request wrote, and what it read.
 * Only a poll does not wait. If a power cut undoes a lease, the job is leased again, and posts for the
 * first lease are refused.
 */
export function answerOnDisk({ db }: Deps): MiddlewareHandler<AppEnv> {
  return async (c, next) => {
    await next();
    if (c.req.path !== "/agent/v1/poll") await db.durable();
  };
}
