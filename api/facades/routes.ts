import type { OpenAPIHono } from "@hono/zod-openapi";
import { eq } from "drizzle-orm";
import type { Context, ExecutionContext, Hono, MiddlewareHandler } from "hono";
import { cors } from "hono/cors";
import { dify } from "./dify.ts";
import { createTokens } from "./e2b-control.ts";
import { e2b } from "./e2b.ts";
import { type Api, type Facade, Refusal } from "./facade.ts";
import { librechat } from "./librechat.ts";
import { piston } from "./piston.ts";
import { sandboxFusion } from "./sandbox-fusion.ts";
import { createSequence, type Sequence, serveMcp, sessionHeader } from "./mcp.ts";
import { base64, fromBase64 } from "../../shared/bytes.ts";
import { describeError } from "../../shared/log-line.ts";
import { countOutage, type Deps } from "../deps.ts";
import { AppError, errorStatus } from "../errors.ts";
import { holdAnswer, isUnderWay, patientJson } from "../http/answer.ts";
import { readBytes, readForm, readText } from "../http/body.ts";
import type { AppEnv, Caller } from "../http/context.ts";
import { answersFor, anybody, type FindCaller, noKey } from "../http/identity.ts";
import { mcpPath, tenantHeader } from "../http/scopes.ts";
import { catalogue } from "../images/sql.ts";
import { isFor, resolveJobType } from "../jobs/environment.ts";
import type { Database } from "../store/database.ts";
import { settings } from "../store/schema.ts";
import { version } from "../version.ts";

/**
 * The protocols of other services that `compat` names, below /compat/<name>. Their requests become requests of their
 * caller to the endpoints.
 */
export function compatRoutes(
  app: OpenAPIHono<AppEnv>,
  deps: Deps,
  endpoints: Hono<AppEnv>,
  findCaller: FindCaller,
  limit: MiddlewareHandler<AppEnv>,
): void {
  const { config, db, isStopping, processMetrics } = deps;
  const facades: Record<(typeof config.compat)[number], Facade> = {
    "sandbox-fusion": sandboxFusion,
    // In workerd, a request must not wait for another one.
    piston: piston(processMetrics !== undefined),
    dify,
    librechat,
    e2b: e2b({
      tokens: createTokens(() => readSecret(db, "compat_secret")),
      maxTimeoutS: config.max_timeout,
    }),
  };
  let held = 0;
  const heldBy = new Map<string, number>();
  const room = { waiting: 0 };
  for (const name of new Set(config.compat)) {
    const base = `/compat/${name}`;
    const facade = facades[name];
    const respond = async (
      c: Context<AppEnv, string>,
      signal: AbortSignal,
      onRunning: () => void,
    ) => {
      let counted: "not yet" | "over the limit" | "once" = "not yet";
      const count = async (): Promise<void> => {
        if (counted === "once") return;
        counted = "over the limit";
        await limit(c, async () => {});
        counted = "once";
      };
      const answer = async (): Promise<Response> => {
        const own = await facade.keyOf?.(c.req.raw.headers, undefined);
        const given = own ?? (await keyOfAll(facade, c.req.raw.headers));
        const caller = await callerOf(c, given);
        if (caller) c.set("caller", caller);
        if (isOfPage(c)) throw new Refusal(403, "Web pages may not use this protocol.");
        if (own === undefined) refuseForeignHost(c);
        // A stranger takes no place while its body arrives.
        if (!caller && c.req.raw.body !== null) throw noKey(config);
        const tenant = caller?.tenant ?? "";
        const ofTenant = heldBy.get(tenant) ?? 0;
        // One tenant must not take every place: when all are taken, as many again are for tenants that hold few.
        const most = config.compat_held * (ofTenant < config.compat_held / 8 ? 2 : 1);
        if (held >= most) throw new Refusal(503, "Too many requests are under way.");
        held += 1;
        heldBy.set(tenant, ofTenant + 1);
        try {
          c.get("answer").take(0);
          const types = await catalogue(deps);
          const api = callerApi(endpoints, c);
          return await facade.answer({
            method: c.req.method,
            path: c.req.path.slice(base.length),
            query: new URL(c.req.url).searchParams,
            headers: c.req.raw.headers,
            key: given,
            networkOf(name) {
              const jobType = resolveJobType(types, name);
              return jobType && isFor(caller?.tenant ?? "", jobType) ? jobType.network : undefined;
            },
            bytes: () => readBytes(c, config.max_request_bytes),
            text: () => readText(c, config.max_request_bytes),
            form: () => readForm(c, config.max_batch_bytes, "max_batch_bytes"),
            async api(request, init, takeEvents) {
              try {
                await count();
              } catch (error) {
                // `submit` asks again.
                if (error instanceof AppError)
                  return Response.json({ detail: error.message }, { status: 429 });
                throw error;
              }
              const answer = await api(request, init, takeEvents);
              if (isUnderWay(answer)) onRunning();
              return answer;
            },
            onRunning,
            isStopping,
            room,
            signal,
          });
        } finally {
          held -= 1;
          const left = heldBy.get(tenant)! - 1;
          if (left > 0) heldBy.set(tenant, left);
          else heldBy.delete(tenant);
        }
      };
      try {
        return await answer().catch(async (error: unknown) => {
          // The facade has sent the service no request that counted.
          if (counted === "not yet") await count();
          throw error;
        });
      } catch (error) {
        if (error instanceof Refusal) return facade.refuse(error.status, error.message);
        if (error instanceof AppError) {
          const answer = facade.refuse(errorStatus[error.code], error.message);
          for (const [name, value] of Object.entries(error.headers))
            answer.headers.set(name, value);
          return answer;
        }
        c.get("log").error("{name}: {reason}", { name, reason: describeError(error) });
        return facade.refuse(500, "The service failed; its log says why.");
      }
    };
    app.all(`${base}/*`, async (c) => {
      const { promise, resolve } = Promise.withResolvers<void>();
      // E2B needs no white space: its answers are files, or streams that are never silent.
      const onRunning = name === "e2b" ? () => {} : resolve;
      return patientJson(c, deps, promise, async (signal) =>
        holdAnswer(c, await respond(c, signal, onRunning)),
      );
    });
  }

  /** The key of requests that have none of their own. */
  function keyOfAll(facade: Facade, headers: Headers) {
    return facade.keyOf ? facade.keyOf(headers, config.compat_key) : config.compat_key;
  }

  async function callerOf(c: Context, key: string | undefined): Promise<Caller | undefined> {
    if (!config.api_auth_enabled) return anybody(config);
    return key === undefined ? undefined : findCaller(c, key);
  }

  function refuseForeignHost(c: Context): void {
    const { hostname } = new URL(c.req.url);
    if (answersFor(hostname, config)) return;
    const way = "use localhost, add the host to allowed_hosts, or send a key of your own";
    throw new Refusal(
      403,
      `Requests without a key are not answered for the host ${hostname}: ${way}.`,
    );
  }
}

/**
 * Browsers say where a request comes from. Without this, a page of any site could run code as the caller of
 * `compat_key`, through the browser of a user who can reach the service.
 */
function isOfPage(c: Context): boolean {
  return c.req.header("Origin") !== undefined || c.req.header("Sec-Fetch-Site") !== undefined;
}

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

/** The Model Context Protocol. Its tools send requests to the endpoints, in the name of the caller. */
export function mcpRoute(
  app: OpenAPIHono<AppEnv>,
  deps: Deps,
  endpoints: Hono<AppEnv>,
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
        api: callerApi(endpoints, c, [tenantHeader]),
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

/**
 * Sends requests to the endpoints in the name of a request's caller. They have its correlation id, and are neither logged
 * nor counted again.
 *
 * @param passed Headers of the request that its own requests have, too.
 */
function callerApi(
  endpoints: Hono<AppEnv>,
  c: Context<AppEnv>,
  passed: readonly string[] = [],
): Api {
  return async (path, init = {}, takeEvents) => {
    // It would lead to another route than the one that was meant.
    if (/\/(\.|%2e){1,2}(\/|$)/i.test(path.split("?")[0]!)) {
      throw new AppError("invalid_request", "A name must not have . or .. as one of its parts.");
    }
    const headers = new Headers(init.headers);
    for (const name of ["X-Forwarded-For", "CF-Connecting-IP", ...passed]) {
      const value = c.req.header(name);
      if (value !== undefined) headers.set(name, value);
    }
    const request = new Request(new URL(path, c.req.url), { ...init, headers });
    return endpoints.fetch(request, { ...c.env, inNameOf: c, takeEvents }, executionContext(c));
  };
}

/** Gives a request of `callerApi` what the middlewares have found for the request that it is made for. */
export function inNameOf({ processMetrics }: Deps): MiddlewareHandler<AppEnv> {
  return async (c, next) => {
    const { correlationId, traceparent, log, caller } = c.env.inNameOf!.var;
    c.set("correlationId", correlationId);
    c.set("traceparent", traceparent);
    c.set("log", log);
    c.set("caller", caller);
    c.set("part", { takeEvents: c.env.takeEvents });
    await next();
    countOutage(processMetrics, c.error);
  };
}

/** Undefined on Node. */
function executionContext(c: Context): ExecutionContext | undefined {
  try {
    return c.executionCtx;
  } catch {
    return undefined;
  }
}

/** Random bytes that all processes with this database share. They are made when they are first asked for. */
async function readSecret(db: Database, name: string): Promise<Uint8Array<ArrayBuffer>> {
  const value = base64(crypto.getRandomValues(new Uint8Array(32)));
  await db.orm.insert(settings).values({ name, value }).onConflictDoNothing();
  const [kept] = await db.orm
    .select({ value: settings.value })
    .from(settings)
    .where(eq(settings.name, name));
  return fromBase64(kept?.value ?? value);
}
