import type { Context, MiddlewareHandler } from "hono";
import type { Config } from "../../../shared/config/config.ts";
import type { Deps } from "../../deps.ts";
import { answersFor } from "./exposure.ts";
import { AppError } from "../../errors.ts";
import type { AppEnv } from "../context.ts";

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
