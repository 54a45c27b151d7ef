import type { MiddlewareHandler } from "hono";
import type { OpenAPIHono } from "@hono/zod-openapi";
import { cors } from "hono/cors";
import { describeError } from "../../shared/log-line.ts";
import { createSequence, type Sequence } from "../../clients/mcp/downloads.ts";
import { serveMcp, sessionHeader } from "../../clients/mcp/http.ts";
import type { Deps } from "../deps.ts";
import { mcpPath } from "../http/access/foreign-pages.ts";
import { callerApi, executionContext } from "../http/access/caller-api.ts";
import type { AppEnv } from "../http/context.ts";
import { readText } from "../http/body/json.ts";
import { holdAnswer } from "../http/json-page.ts";
import { version } from "../version.ts";

/** Lets pages of `allowed_origins` read the answers of the endpoint. */
export function allowMcpOrigins(app: OpenAPIHono<AppEnv>, { config }: Deps): void {
  if (config.allowed_origins.length === 0) return;
  app.use(
    mcpPath,
    cors({
      origin: config.allowed_origins,
      allowMethods: ["POST"],
      exposeHeaders: [sessionHeader, "X-Correlation-ID"],
    }),
  );
}

/** Files that are read at the same time for answers. Each is whole in memory. */
const filesAtOnce = 4;

/** The Model Context Protocol. Its tools send requests to this app, with the credentials of the caller. */
export function mcpRoute(
  app: OpenAPIHono<AppEnv>,
  deps: Deps,
  rateLimit: MiddlewareHandler<AppEnv>,
): void {
  // In workerd, no request may wait for another one.
  const inSequence: Sequence = deps.processMetrics ? createSequence(filesAtOnce) : (read) => read();
  app.all(mcpPath, async (c) => {
    const body = await readText(c, deps.config.max_request_bytes);
    const context = executionContext(c);
    c.get("answer").take(0);
    const answer = await serveMcp(
      {
        request: c.req.raw,
        body,
        async countMore(calls) {
          for (let n = 0; n < calls; n++) await rateLimit(c, async () => {});
        },
        isStopping: deps.isStopping,
        inSequence,
      },
      {
        api: callerApi(app, c, deps.config, context),
        version,
        keep(work) {
          const logged = work.catch((error: unknown) => {
            c.get("log").error("mcp: {reason}", { reason: describeError(error) });
          });
          context?.waitUntil(logged);
        },
      },
    );
    return holdAnswer(c, answer);
  });
}
