import type { Context, ExecutionContext, Hono } from "hono";
import type { Config } from "../../../shared/config/config.ts";
import { AppError } from "../../errors.ts";
import type { AppEnv } from "../context.ts";
import { tenantHeader } from "./bind-client.ts";
import { alreadyCounted } from "./rate-limit.ts";

/** Sends a request to this app, as `fetch` does. */
export type CallerApi = (path: string, init?: RequestInit) => Promise<Response>;

/**
 * Sends requests to this app in the name of a request's caller. The rate limit counts only the caller's own request.
 *
 * @param key The API key that stands for the caller; without it, the credentials of the request.
 */
export function callerApi(
  app: Pick<Hono<AppEnv>, "fetch">,
  c: Context<AppEnv>,
  { api_auth_header }: Pick<Config, "api_auth_header">,
  context: ExecutionContext | undefined,
  key?: string | null,
): CallerApi {
  const address = ["X-Forwarded-For", "CF-Connecting-IP"];
  const passed =
    key === undefined ? ["Authorization", api_auth_header, tenantHeader, ...address] : address;
  return async (path, init = {}) => {
    // It would lead to another route than the one that was meant.
    if (/\/(\.|%2e){1,2}(\/|$)/i.test(path.split("?")[0]!)) {
      throw new AppError("invalid_request", "A name must not have . or .. as one of its parts.");
    }
    const headers = new Headers(init.headers);
    headers.set("X-Correlation-ID", c.get("correlationId"));
    const traceparent = c.get("traceparent");
    if (traceparent !== undefined) headers.set("traceparent", traceparent);
    for (const name of passed) {
      const value = c.req.header(name);
      if (value !== undefined) headers.set(name, value);
    }
    if (key) headers.set("Authorization", `Bearer ${key}`);
    const request = new Request(new URL(path, c.req.url), { ...init, headers });
    return app.fetch(alreadyCounted(request), c.env, context);
  };
}

/** Undefined on Node. */
export function executionContext(c: Context): ExecutionContext | undefined {
  try {
    return c.executionCtx;
  } catch {
    return undefined;
  }
}
