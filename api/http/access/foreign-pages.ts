import type { Context, MiddlewareHandler } from "hono";
import type { Config } from "../../../shared/config/config.ts";
import type { Deps } from "../../deps.ts";
import { answersFor } from "./exposure.ts";
import { AppError } from "../../errors.ts";
import type { AppEnv } from "../context.ts";

/**
 * Without keys, refuses requests that a page of another site sends through the browser of a user who
 * can reach the service. With keys there is no need: such a page has no key.
 */
export function refuseForeignPages({ config }: Deps): MiddlewareHandler<AppEnv> {
  return async (c, next) => {
    const { hostname } = new URL(c.req.url);
    if (!answersFor(hostname, config)) {
      throw new AppError(
        "forbidden",
        `Without API keys the service does not answer requests for the host ${hostname}: use localhost, add the host to allowed_hosts, or set api_auth_enabled and api_keys.`,
      );
    }
    if (!config.api_auth_enabled && isOfForeignPage(c, config)) {
      throw new AppError(
        "forbidden",
        "Without API keys the service refuses requests of pages of other sites (Sec-Fetch-Site, Origin): set api_auth_enabled and api_keys.",
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
  if (!URL.canParse(origin)) return true;
  const { host, hostname } = new URL(origin);
  return host !== new URL(c.req.url).host && !allowed_hosts.includes(hostname);
}
