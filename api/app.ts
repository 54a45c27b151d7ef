import { OpenAPIHono } from "@hono/zod-openapi";
import type { Context, ErrorHandler, Hono, MiddlewareHandler, NotFoundHandler } from "hono";
import type { RouterRoute } from "hono/types";
import { HTTPException } from "hono/http-exception";
import { matchedRoutes } from "hono/route";
import { TrieRouter } from "hono/router/trie-router";
import { describeError } from "../shared/log-line.ts";
import { hostRoutes } from "./agents/hosts.ts";
import { agentRoutes } from "./agents/routes.ts";
import { ArtifactOutage, countOutage, type Deps } from "./deps.ts";
import { AppError, errorStatus, problemOf, unavailable } from "./errors.ts";
import { eventRoutes, openStreams } from "./events/routes.ts";
import { allowMcpOrigins, compatRoutes, inNameOf, mcpRoute } from "./facades/routes.ts";
import { artifactRoutes, fileRoutes } from "./files/routes.ts";
import { holdBytes, onInvalid, unbounded } from "./http/body.ts";
import { type AppEnv, type HeldBytes, isHealthPath, securityHeaders } from "./http/context.ts";
import { clientNetwork, findCallers, identifyCaller } from "./http/identity.ts";
import { openApiRoute } from "./http/openapi.ts";
import { consoleRoutes, docsRoutes } from "./http/pages.ts";
import { rateLimit } from "./http/rate-limit.ts";
import {
  bindClient,
  checkTable,
  openApiPath,
  refuseForeignPages,
  requireScope,
} from "./http/scopes.ts";
import { jobTypeRoutes } from "./images/routes.ts";
import { batchRoutes } from "./jobs/batches.ts";
import { deadLetterRoutes, executionRoutes } from "./jobs/executions.ts";
import { deriveRoutes, executeRoutes, jobRoutes } from "./jobs/routes.ts";
import { toolCallRoutes } from "./jobs/tool-calls.ts";
import { healthRoutes, probeRoutes } from "./monitoring/health.ts";
import { metricsRoute } from "./monitoring/metrics.ts";
import { callRoutes, contextRoutes, sessionFileRoutes, sessionRoutes } from "./sessions/routes.ts";
import { isStoreOutage, isTooLargeForStore } from "./store/database.ts";
import { auditRoutes, keyRoutes, tenantRoutes, usageRoute } from "./tenants/routes.ts";
import { webhookRoutes } from "./webhooks/routes.ts";

/** The whole HTTP API, made from its dependencies; the same on Node and on an edge runtime. */
export function createApp(deps: Deps): OpenAPIHono<AppEnv> {
  const app = new OpenAPIHono<AppEnv>({ defaultHook: onInvalid });
  app.use(measure(deps), correlation(deps), securityHeaders, answerOnDisk(deps));
  app.onError(onError);

  app.route("/agent/v1", agentRoutes(deps));
  app.use(refuseForeignPages(deps));
  const { max_request_bytes, max_batch_bytes } = deps.config;
  const largest = Math.max(max_request_bytes, max_batch_bytes);
  const clientOf = (c: Context<AppEnv>): string =>
    c.get("caller")?.keyId ?? clientNetwork(deps.clientAddress(c));
  // On Workers, the end of an answer may go unnoticed.
  const answers = deps.processMetrics ? { each: largest, all: 4 * largest } : unbounded;
  const hold = holdBytes(clientOf, { bodies: { each: largest, all: 2 * largest }, answers });
  app.use(hold);
  consoleRoutes(app, deps);
  allowMcpOrigins(app, deps);
  const callers = findCallers(deps);
  const limit = rateLimit(deps);
  const endpoints = clientEndpoints(deps, callers.relist);
  // Requests of the facades and of MCP's tools are a part of one request, which has passed the middlewares above.
  const direct = new OpenAPIHono<AppEnv>();
  direct.use(inNameOf(deps), answerOnDisk(deps), hold);
  direct.route("/", endpoints);
  direct.onError(onError);
  direct.notFound(refuseUnrouted(endpoints));
  compatRoutes(app, deps, direct, callers.find, limit);
  app.use(identifyCaller(deps, callers.find), limit);
  app.route("/", endpoints);
  mcpRoute(app, deps, direct, limit);
  app.notFound(refuseUnrouted(app));
  checkTable(app);
  return app;
}

/** The endpoints of clients. */
function clientEndpoints(deps: Deps, relistKeys: () => void): OpenAPIHono<AppEnv> {
  const app = new OpenAPIHono<AppEnv>({ defaultHook: onInvalid });
  app.use(requireScope(deps.config), bindClient(deps));
  // /docs shows them in this order.
  const streams = openStreams(deps);
  executeRoutes(app, deps, streams);
  batchRoutes(app, deps);
  fileRoutes(app, deps);
  sessionRoutes(app, deps);
  callRoutes(app, deps, streams);
  contextRoutes(app);
  sessionFileRoutes(app, deps);
  jobRoutes(app);
  toolCallRoutes(app);
  eventRoutes(app, deps, streams);
  deriveRoutes(app, deps);
  artifactRoutes(app);
  executionRoutes(app);
  jobTypeRoutes(app, deps);
  deadLetterRoutes(app);
  webhookRoutes(app, deps);
  usageRoute(app, deps);
  healthRoutes(app, deps);
  hostRoutes(app, deps);
  auditRoutes(app, deps);
  keyRoutes(app, deps, relistKeys);
  tenantRoutes(app, deps);
  probeRoutes(app, deps);
  metricsRoute(app, deps);
  openApiRoute(app, deps);
  docsRoutes(app, deps);
  return app;
}

/** Counts every answer in the process's metrics, if the platform has them. */
export function measure({ processMetrics, now }: Deps): MiddlewareHandler<AppEnv> {
  return async (c, next) => {
    if (!processMetrics) return next();
    const startedAt = now();
    await next();
    const { method } = c.req;
    const seconds = (now() - startedAt) / 1000;
    processMetrics.answered({ method, route: routeOf(c), status: c.res.status, seconds });
    countOutage(processMetrics, c.error);
  };
}

/** The endpoint's path as declared, or a facade's, which limits the number of series to the number of endpoints. */
function routeOf(c: Context): string {
  const path = matchedRoutes(c).findLast(isNamed)?.path;
  return path === undefined ? "none" : openApiPath(path);
}

const isNamed = ({ path }: RouterRoute): boolean =>
  !path.endsWith("*") || path.startsWith("/compat/");

const plainToken = /^[A-Za-z0-9._:/+=@-]{1,128}$/;

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
    const id = given !== undefined && plainToken.test(given) ? given : newId();
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

const validTrace = /^00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}$/;

/** The W3C trace context of a request; undefined if it has none, or none that is valid. */
function traceparentOf(header: string | undefined): string | undefined {
  return header !== undefined && validTrace.test(header) ? header : undefined;
}

/**
 * Delays each answer until every earlier commit is on disk: what the request wrote, and what it read.
 * Only a poll does not wait. If a power cut undoes a lease, the job is leased again, and posts for the
 * first lease are refused.
 */
function answerOnDisk({ db }: Deps): MiddlewareHandler<AppEnv> {
  return async (c, next) => {
    await next();
    if (c.req.path !== "/agent/v1/poll") await db.durable();
  };
}

/** Turns any thrown error into problem details (RFC 9457). The text of an unknown error is not shown. */
export const onError: ErrorHandler<AppEnv> = (error, c) => {
  const refusal = asRefusal(error);
  // The answer that this one replaces is never read.
  (c.get("answer") as HeldBytes | undefined)?.release();
  const isOutage =
    refusal.code === "unavailable" && (refusal !== error || refusal.cause !== undefined);
  if (isOutage || refusal.code === "internal") {
    c.get("log").error("{method} {path} failed: {reason}", {
      method: c.req.method,
      path: c.req.path,
      reason: describeError(error),
    });
  }
  const problem = problemOf(refusal, c.get("correlationId"));
  return c.body(JSON.stringify(problem), errorStatus[refusal.code], {
    "Content-Type": "application/problem+json",
    ...refusal.headers,
  });
};

function asRefusal(error: Error): AppError {
  if (error instanceof AppError) return error;
  if (error instanceof HTTPException && error.status < 500) {
    return new AppError("invalid_request", error.message);
  }
  if (error instanceof ArtifactOutage) {
    return unavailable("The artifact store is unavailable for the moment; try again.", 5);
  }
  if (isStoreOutage(error)) {
    return unavailable("The database is unavailable for the moment; try again.", 5);
  }
  // Not 500: an agent posts its result again for as long as that is the answer.
  if (isTooLargeForStore(error)) {
    return new AppError(
      "too_large",
      "The server of the service's database takes no row of this size; its operator can raise max_row_size. Code, input_data and stdin of a request go into one row, and each of its files into one: send large files with POST /files.",
    );
  }
  return new AppError(
    "internal",
    "Something went wrong; the service's log has more under the correlation id.",
  );
}

/** Answers requests that match no route: 405 with Allow if the path is an endpoint's, else 404. */
function refuseUnrouted({ routes }: Pick<Hono<AppEnv>, "routes">): NotFoundHandler<AppEnv> {
  const methods = new TrieRouter<string>();
  for (const { method, path } of routes) if (method !== "ALL") methods.add("ALL", path, method);
  return (c) => {
    const { method, path } = c.req;
    const allowed = new Set(methods.match("ALL", path)[0].map(([name]) => name));
    if (allowed.has("GET")) allowed.add("HEAD");
    if (allowed.size === 0) {
      const detail = `${method} ${path} is not an endpoint; see /openapi.json.`;
      throw new AppError("not_found", detail);
    }
    const Allow = [...allowed].sort().join(", ");
    const detail = `${path} does not take the method ${method}, but ${Allow}.`;
    throw new AppError("method_not_allowed", detail, {}, { Allow });
  };
}
