import type { MiddlewareHandler } from "hono";
import { clientDeps, type Deps } from "../../deps.ts";
import { endOverdueJobs } from "../../jobs/end-overdue.ts";
import type { AppEnv } from "../context.ts";

/** Gives the handlers of clients what they work with, bound to the caller's tenant. */
export function bindClient(deps: Deps): MiddlewareHandler<AppEnv> {
  const endOverdue = (): Promise<void> => endOverdueJobs(deps);
  return async (c, next) => {
    const caller = c.get("caller");
    if (caller) c.set("client", clientDeps(deps, caller.tenant, endOverdue, caller.recheck));
    await next();
  };
}
