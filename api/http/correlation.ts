import type { MiddlewareHandler } from "hono";
import { traceparentOf } from "../domain/traceparent.ts";
import type { Deps } from "../deps.ts";
import type { AppEnv } from "./context.ts";
import { isHealthPath } from "./health-paths.ts";

const acceptable = /^[A-Za-z0-9._:/+=@-]{1,128}$/;

/** Agents and monitors send requests all the time; their log lines would bury those of clients. */
function isRoutine(path: string): boolean {
  return path.startsWith("/agent/") || path === "/metrics" || isHealthPath(path);
}

/**
 * Gives every request a correlation id and a logger that carries it. The client's own id is used if it
 * is a plain token. Sends the id with every response, and logs one line per request.
 * See docs/contract.md 1.10.
 */
export function correlation({ log, newId, now }: Deps): MiddlewareHandler<AppEnv> {
  return async (c, next) => {
    const given = c.req.header("X-Correlation-ID");
    const id = given !== undefined && acceptable.test(given) ? given : newId();
    c.set("correlationId", id);
    const traceparent = traceparentOf(c.req.header("traceparent"));
    c.set("traceparent", traceparent);
    c.set("log", log.with({ correlationId: id, ...(traceparent && { traceparent }) }));
    const startedAt = now();
    await next();
    c.res.headers.set("X-Correlation-ID", id);
    const level = isRoutine(c.req.path) && c.res.status < 400 ? "debug" : "info";
    c.get("log")[level]("{method} {path} {status} {ms} ms", {
      method: c.req.method,
      path: c.req.path,
      status: c.res.status,
      ms: now() - startedAt,
    });
  };
}
