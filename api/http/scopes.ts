import type { Context, Hono, MiddlewareHandler } from "hono";
import { matchedRoutes } from "hono/route";
import type { RouterRoute } from "hono/types";
import type { Config } from "../../shared/config/config.ts";
import { type Scope, TenantName } from "../../shared/wire/access.ts";
import { type ClientDeps, clientDeps, type Deps } from "../deps.ts";
import { AppError } from "../errors.ts";
import { endOverdueJobs } from "../jobs/wait.ts";
import { sweepSessions } from "../sessions/lease.ts";
import { findTenant } from "../tenants/sql.ts";
import type { AppEnv, Caller } from "./context.ts";
import { answersFor, noKey } from "./identity.ts";

/** "public": no key. "any": a key with any scope. "inner": its requests to this app pass the table themselves. */
type Access = Scope | "public" | "any" | "inner";

/** Every route, and what a caller needs for it. HEAD needs what GET needs. Any other request is refused. */
const table: Record<Access, string[]> = {
  public: [
    "GET /health",
    "GET /health/live",
    "GET /health/ready",
    "GET /console",
    "GET /console/*",
    "GET /console/assets/{name}",
  ],
  inner: [
    "ALL /compat/sandbox-fusion/*",
    "ALL /compat/piston/*",
    "ALL /compat/dify/*",
    "ALL /compat/librechat/*",
    "ALL /compat/e2b/*",
  ],
  any: [
    "GET /docs",
    "GET /docs/problems",
    "GET /docs/start.js",
    "GET /docs/page.css",
    "GET /docs/{asset}",
    "GET /openapi.json",
    "GET /llms.txt",
    "GET /key",
    "ALL /mcp",
  ],
  run: [
    "POST /execute",
    "POST /execute/async",
    "POST /execute/batch",
    "POST /jobs/{id}/rerun",
    "POST /jobs/{id}/fork",
    "POST /jobs/{id}/cancel",
    "POST /jobs/{id}/tool-calls/{number}",
    "POST /batches/{id}/cancel",
    "POST /files",
    "POST /sessions",
    "PATCH /sessions/{id}",
    "DELETE /sessions/{id}",
    "POST /sessions/{id}/execute",
    "POST /sessions/{id}/execute/async",
    "POST /sessions/{id}/interrupt",
    "POST /sessions/{id}/restart",
    "POST /sessions/{id}/contexts",
    "DELETE /sessions/{id}/contexts/{context_id}",
    // Each is a call, which runs programs.
    "GET /sessions/{id}/files",
    "GET /sessions/{id}/files/{path}",
    "PUT /sessions/{id}/files/{path}",
    "DELETE /sessions/{id}/files/{path}",
    "POST /webhooks/deliveries/{id}/resend",
    "DELETE /executions/{id}",
    "DELETE /files/{id}",
    "DELETE /dlq/{id}",
  ],
  read: [
    "GET /jobs/{id}",
    "GET /jobs/{id}/result",
    "GET /jobs/{id}/events",
    "GET /jobs/{id}/tool-calls",
    "GET /jobs/{id}/logs",
    "GET /jobs/{id}/artifacts",
    "GET /jobs/{job_id}/artifacts/{artifact_name}",
    "GET /sessions",
    "GET /sessions/{id}",
    "GET /sessions/{id}/contexts",
    "GET /executions",
    "GET /executions/{id}",
    "GET /batches/{id}",
    "GET /dlq",
    "GET /dlq/stats",
    "GET /files",
    "GET /files/{id}",
    "GET /job-types",
    "GET /job-types/{name}",
    "GET /webhooks/deliveries",
    "GET /webhooks/events",
    "GET /usage",
    "GET /pool/stats",
  ],
  build: [
    "POST /job-types/{name}/build",
    "GET /job-types/{name}/build",
    "PUT /job-types/{name}",
    "DELETE /job-types/{name}",
  ],
  monitor: ["GET /metrics", "GET /pool/history"],
  agents: [
    "GET /hosts",
    "POST /hosts/invitations",
    "POST /hosts/{id}/revoke",
    "POST /hosts/{id}/rotate",
    "POST /agents/{id}/drain",
    "POST /agents/{id}/resume",
  ],
  admin: [
    "POST /keys",
    "GET /keys",
    "POST /keys/{id}/rotate",
    "POST /keys/{id}/revoke",
    "GET /tenants",
    "GET /tenants/{name}",
    "PUT /tenants/{name}",
    "GET /audit",
  ],
};

const accessOf = new Map(
  Object.entries(table).flatMap(([access, routes]) =>
    routes.map((route) => [route, access as Access] as const),
  ),
);

/** The agents' protocol has tokens of its own, and facades exist only where `compat` names them. */
const isElsewhere = (route: string): boolean => / \/agent\/v1\//.test(route);
const isOptional = (route: string): boolean => accessOf.get(route) === "inner";

/** Where MCP clients look for an OAuth server. There is none: the answer is 404, because they misread a 401. */
const oauthPaths = /^\/(\.well-known\/(oauth-|openid-configuration).*|register)$/;
const docsPaths = /^\/(docs(\/.*)?|openapi\.json|llms\.txt)$/;

/** What a route needs, by its method and its path as OpenAPI writes it; undefined if it is not in the table. */
export function accessTo(method: string, path: string, config: Config): Access | undefined {
  if (config.api_docs_public && docsPaths.test(path)) return "public";
  return accessOf.get(`${method === "HEAD" ? "GET" : method} ${openApiPath(path)}`);
}

/** Requires the key and the scope that the table names for the route of a request. */
export function requireScope(config: Config): MiddlewareHandler<AppEnv> {
  const known = new Map<RouterRoute, Access | undefined>();
  return async (c, next) => {
    const access = accessOfRequest(c, config, known);
    const caller = c.get("caller");
    if (access !== "public" && !caller) throw noKey(config);
    // Without a route, the answer is 404 or 405.
    if (access !== undefined && access !== "any" && access !== "public") need(access, caller);
    await next();
  };
}

/** @param known What the routes of earlier requests need. */
function accessOfRequest(
  c: Context,
  config: Config,
  known: Map<RouterRoute, Access | undefined>,
): Access | undefined {
  for (const route of matchedRoutes(c)) {
    if (!known.has(route)) known.set(route, accessTo(route.method, route.path, config));
    const access = known.get(route);
    if (access !== undefined) return access;
  }
  return oauthPaths.test(c.req.path) ? "public" : undefined;
}

/** @throws AppError 403 that names the scope which a caller lacks. */
function need(scope: string, caller: Caller | undefined): void {
  if (caller?.scopes.some((one) => one === scope)) return;
  throw new AppError(
    "forbidden",
    `This needs the scope ${scope}: use a key that has it, such as one of operator_keys, or one that npm run keys makes with --scopes ${scope}.`,
  );
}

/** A route's path as OpenAPI writes it. */
export function openApiPath(path: string): string {
  return path.replaceAll(/:(\w+)(\{[^}]*\})?/g, "{$1}");
}

/** A handler that takes `next` is middleware. */
function isEndpoint({ method, handler }: { method: string; handler: unknown }): boolean {
  return method !== "ALL" || (handler as () => void).length < 2;
}

/** @throws Error if the app has a route that the table lacks, or the table one that the app lacks. */
export function checkTable({ routes }: Pick<Hono<AppEnv>, "routes">): void {
  const own = new Set(
    routes.filter(isEndpoint).map(({ method, path }) => `${method} ${openApiPath(path)}`),
  );
  const missing = [...own].filter((route) => !accessOf.has(route) && !isElsewhere(route));
  const surplus = [...accessOf.keys()].filter((route) => !own.has(route) && !isOptional(route));
  if (missing.length + surplus.length === 0) return;
  throw new Error(
    `the table of scopes lacks ${missing.join(", ") || "nothing"}; the app lacks ${surplus.join(", ") || "nothing"}`,
  );
}

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

/** Endpoint of the Model Context Protocol. Its rule about origins applies even if the service has keys. */
export const mcpPath = "/mcp";

/**
 * Without keys, refuses requests that a page of another site sends through the browser of a user who
 * can reach the service. With keys there is no need: such a page has no key.
 */
export function refuseForeignPages({ config }: Deps): MiddlewareHandler<AppEnv> {
  return async (c, next) => {
    const { hostname } = new URL(c.req.url);
    if (!config.api_auth_enabled && !answersFor(hostname, config)) {
      throw new AppError(
        "forbidden",
        `Without API keys the service does not answer requests for the host ${hostname}: use localhost, add the host to allowed_hosts, or set api_auth_enabled and api_keys.`,
      );
    }
    if (c.req.path === mcpPath) {
      const origin = c.req.header("Origin");
      if (origin !== undefined && config.allowed_origins.includes(origin)) return next();
      if (origin !== undefined && !isOwnOrigin(c, origin)) {
        throw new AppError(
          "forbidden",
          `Pages of ${origin} may not use ${mcpPath}: add it to allowed_origins.`,
        );
      }
    }
    if (!config.api_auth_enabled && isOfForeignPage(c, config)) {
      throw new AppError(
        "forbidden",
        "Without API keys the service refuses requests of pages of other sites (Sec-Fetch-Site, Origin): let your own server send them.",
      );
    }
    await next();
  };
}

/** Links from other sites are allowed: the page with the link cannot read the answer. */
function isOfForeignPage(c: Context, { allowed_hosts }: Config): boolean {
  const site = c.req.header("Sec-Fetch-Site");
  if (site !== undefined) {
    const isLink = c.req.method === "GET" && c.req.header("Sec-Fetch-Mode") === "navigate";
    return site !== "same-origin" && site !== "none" && !isLink;
  }
  // Browsers send Sec-Fetch-Site to https and to localhost only; programs send neither header.
  const origin = c.req.header("Origin");
  if (origin === undefined) return false;
  return !isOwnOrigin(c, origin) && !isAllowedHost(origin, allowed_hosts);
}

function isOwnOrigin(c: Context, origin: string): boolean {
  return URL.canParse(origin) && new URL(origin).host === new URL(c.req.url).host;
}

function isAllowedHost(origin: string, allowed: string[]): boolean {
  return URL.canParse(origin) && allowed.includes(new URL(origin).hostname);
}
