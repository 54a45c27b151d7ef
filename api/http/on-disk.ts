import type { MiddlewareHandler } from "hono";
import type { Deps } from "../deps.ts";
import type { AppEnv } from "./context.ts";

/**
 * Answers once what was committed up to then is on disk: what a request wrote, and what it saw of
 * others. A poll alone does not wait. A lease is no promise: one that a power cut takes back is
 * given again, and the first is refused from then on.
 */
export function answerOnDisk({ db }: Deps): MiddlewareHandler<AppEnv> {
  return async (c, next) => {
    await next();
    if (c.req.path !== "/agent/v1/poll") await db.durable();
  };
}
