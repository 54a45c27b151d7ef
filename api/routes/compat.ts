import type { Context, MiddlewareHandler } from "hono";
import type { OpenAPIHono } from "@hono/zod-openapi";
import { dify } from "../../clients/compat/dify.ts";
import { e2b } from "../../clients/compat/e2b/e2b.ts";
import { createTokens } from "../../clients/compat/e2b/token.ts";
import { type Facade, Refusal } from "../../clients/compat/facade.ts";
import { librechat } from "../../clients/compat/librechat/librechat.ts";
import { piston } from "../../clients/compat/piston.ts";
import { sandboxFusion } from "../../clients/compat/sandbox-fusion.ts";
import { describeError } from "../../shared/log-line.ts";
import type { Deps } from "../deps.ts";
import { isFor, resolveJobType } from "../domain/job-types.ts";
import { AppError, errorStatus } from "../errors.ts";
import { callerApi, executionContext } from "../http/access/caller-api.ts";
import { answersFor } from "../http/access/exposure.ts";
import { anybody, type FindCaller, noKey } from "../http/access/identify.ts";
import { readForm, readText } from "../http/body/json.ts";
import { holdAnswer, isUnderWay, patientJson } from "../http/json-page.ts";
import { readBytes } from "../http/body/read.ts";
import type { AppEnv, Caller } from "../http/context.ts";
import { readSecret } from "../store/secret.ts";

/**
 * The protocols of other services that `compat` names, below /compat/<name>. Their requests become requests of their
 * caller to this app.
 */
export function compatRoutes(
  app: OpenAPIHono<AppEnv>,
  deps: Deps,
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
        if (held >= config.compat_held) throw new Refusal(503, "Too many requests are under way.");
        held += 1;
        try {
          c.get("answer").take(0);
          const api = callerApi(app, c, config, executionContext(c), given ?? null);
          return await facade.answer({
            method: c.req.method,
            path: c.req.path.slice(base.length),
            query: new URL(c.req.url).searchParams,
            headers: c.req.raw.headers,
            key: given,
            networkOf(name) {
              const jobType = resolveJobType(config, name);
              return jobType && isFor(caller?.tenant ?? "", jobType) ? jobType.network : undefined;
            },
            bytes: () => readBytes(c, config.max_request_bytes),
            text: () => readText(c, config.max_request_bytes),
            form: () => readForm(c, config.max_batch_bytes, "max_batch_bytes"),
            async api(request, init) {
              try {
                await count();
              } catch (error) {
                // `submit` asks again.
                if (error instanceof AppError)
                  return Response.json({ detail: error.message }, { status: 429 });
                throw error;
              }
              const answer = await api(request, init);
              if (isUnderWay(answer)) onRunning();
              return answer;
            },
            onRunning,
            isStopping,
            signal,
          });
        } finally {
          held -= 1;
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
