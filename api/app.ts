import { OpenAPIHono } from "@hono/zod-openapi";
import type { Deps } from "./deps.ts";
import { identifyKey, requireApiKey } from "./http/access/auth.ts";
import type { AppEnv } from "./http/context.ts";
import { correlation } from "./http/correlation.ts";
import { measure } from "./http/measure.ts";
import { answerOnDisk } from "./http/on-disk.ts";
import { refuseUnrouted } from "./http/not-found.ts";
import { onError } from "./http/problem.ts";
import { refuseForeignPages } from "./http/access/foreign-pages.ts";
import { rateLimit } from "./http/access/rate-limit.ts";
import { securityHeaders } from "./http/security-headers.ts";
import { onInvalid } from "./http/validation.ts";
import { agentRoutes } from "./routes/agent.ts";
import { artifactRoutes } from "./routes/artifacts.ts";
import { batchRoutes } from "./routes/batches.ts";
import { consoleRoutes } from "./routes/console.ts";
import { deadLetterRoutes } from "./routes/dead-letters.ts";
import { docsRoutes } from "./routes/docs.ts";
import { eventRoutes } from "./routes/events.ts";
import { deriveRoutes } from "./routes/derive.ts";
import { executeRoutes } from "./routes/execute.ts";
import { executionRoutes } from "./routes/executions.ts";
import { fileRoutes } from "./routes/files.ts";
import { healthRoutes } from "./routes/health.ts";
import { hostRoutes } from "./routes/hosts.ts";
import { jobTypeRoutes } from "./routes/job-types.ts";
import { jobRoutes } from "./routes/jobs.ts";
import { allowMcpOrigins, mcpRoute } from "./routes/mcp.ts";
import { metricsRoute } from "./routes/metrics.ts";
import { openApiRoute } from "./openapi/openapi.ts";
import { probeRoutes } from "./routes/probes.ts";
import { webhookRoutes } from "./routes/webhooks.ts";

/** The whole HTTP API, made from its dependencies; the same on Node and on an edge runtime. */
export function createApp(deps: Deps): OpenAPIHono<AppEnv> {
  const app = new OpenAPIHono<AppEnv>({ defaultHook: onInvalid });
  app.use(measure(deps), correlation(deps), securityHeaders, answerOnDisk(deps));
  app.onError(onError);

  app.route("/agent/v1", agentRoutes(deps));
  app.use(refuseForeignPages(deps));
  consoleRoutes(app, deps);
  allowMcpOrigins(app, deps);
  const limit = rateLimit(deps);
  app.use(identifyKey(deps), limit, requireApiKey(deps));
  // /docs shows them in this order.
  executeRoutes(app, deps);
  batchRoutes(app, deps);
  fileRoutes(app, deps);
  jobRoutes(app, deps);
  eventRoutes(app, deps);
  deriveRoutes(app, deps);
  artifactRoutes(app, deps);
  executionRoutes(app, deps);
  jobTypeRoutes(app, deps);
  deadLetterRoutes(app, deps);
  webhookRoutes(app, deps);
  healthRoutes(app, deps);
  hostRoutes(app, deps);
  probeRoutes(app, deps);
  metricsRoute(app, deps);
  openApiRoute(app, deps);
  docsRoutes(app, deps);
  mcpRoute(app, deps, limit);
  app.notFound(refuseUnrouted(app));
  return app;
}
