import type { Context, MiddlewareHandler } from "hono";
import { TenantName } from "../../../shared/wire/tenant.ts";
import { type ClientDeps, clientDeps, type Deps } from "../../deps.ts";
import { AppError } from "../../errors.ts";
import { endOverdueJobs } from "../../jobs/end-overdue.ts";
import { sweepSessions } from "../../sessions/sweep-sessions.ts";
import { findTenant } from "../../store/tenants.ts";
import type { AppEnv, Caller } from "../context.ts";
import { mcpPath } from "./foreign-pages.ts";
import { need } from "./scopes.ts";

/** Names the tenant whose records a request is about; `*` is all. */
export const tenantHeader = "X-Airlock-Tenant";

/** Gives the handlers of clients what they work with, bound to the caller's tenant or the one that it names. */
export function bindClient(deps: Deps): MiddlewareHandler<AppEnv> {
  const endOverdue = async (): Promise<void> => {
    await endOverdueJobs(deps);
    await sweepSessions(deps);
  };
  const bind = ({ recheck }: Caller, tenant: string): ClientDeps =>
    clientDeps(deps, tenant, endOverdue, recheck);
  // All requests with one key share a Caller for at least a second.
  const bound = new WeakMap<Caller, ClientDeps>();
  const bindOwn = (caller: Caller): ClientDeps => {
    const known = bound.get(caller) ?? bind(caller, caller.tenant);
    bound.set(caller, known);
    return known;
  };
  return async (c, next) => {
    const caller = c.get("caller");
    if (caller) {
      const named = await namedTenant(deps, c, caller);
      c.set("client", named === undefined ? bindOwn(caller) : bind(caller, named));
    }
    await next();
  };
}

/**
 * @throws AppError 403 if the caller may not see another tenant's records, 400 for an unknown tenant, or if a
 * request that changes something names no single one.
 */
async function namedTenant(
  { db }: Deps,
  c: Context<AppEnv>,
  caller: Caller,
): Promise<string | undefined> {
  const name = c.req.header(tenantHeader);
  // The requests of its tools bring the header again.
  if (name === undefined || name === caller.tenant || c.req.path === mcpPath) return undefined;
  need("admin", caller);
  if (name === "*") {
    if (c.req.method === "GET" || c.req.method === "HEAD") return name;
    throw invalid("* is for reading: name one tenant.");
  }
  if (TenantName.safeParse(name).success && (await findTenant(db, name))) return name;
  throw invalid("There is no tenant of this name: PUT /tenants/{name} makes one.");
}

function invalid(detail: string): AppError {
  return new AppError("invalid_request", `${tenantHeader}: ${detail}`);
}
