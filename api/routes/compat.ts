import type { Context } from "hono";
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
import { resolveJobType } from "../domain/job-types.ts";
import { AppError, errorStatus } from "../errors.ts";
import { callerApi, executionContext } from "../http/access/caller-api.ts";
import { type FindCaller, noKey } from "../http/access/identify.ts";
import { readForm, readText } from "../http/body/json.ts";
import { readBytes } from "../http/body/read.ts";
import type { AppEnv } from "../http/context.ts";
import { readSecret } from "../store/secret.ts";

/**
 * The protocols of other services that `compat` names, below /compat/<name>. Their requests become requests of their
 * caller to this app.
 */
export function compatRoutes(
  app: OpenAPIHono<AppEnv>,
  { config, db, isStopping }: Deps,
  findCaller: FindCaller,
): void {
  const facades: Record<(typeof config.compat)[number], Facade> = {
    "sandbox-fusion": sandboxFusion,
    piston: piston(),
    dify,
    librechat,
    e2b: e2b({
      tokens: createTokens(() => readSecret(db, "compat_secret")),
      maxTimeoutS: config.max_timeout,
      isJobType: (name) => resolveJobType(config, name) !== undefined,
      hasNetwork: (name) => resolveJobType(config, name)?.network !== "none",
    }),
  };
  let held = 0;
  for (const name of new Set(config.compat)) {
    const base = `/compat/${name}`;
    const facade = facades[name];
    app.all(`${base}/*`, async (c) => {
      try {
        const given = facade.keyOf
          ? await facade.keyOf(c.req.raw.headers, config.compat_key)
          : config.compat_key;
        let isCounted = false;
        const context = executionContext(c);
        const api = callerApi(app, c, config, context, given ?? null, () => isCounted);
        if (isOfPage(c)) throw new Refusal(403, "Web pages may not use this protocol.");
        // A stranger takes no place while its body arrives.
        const needsKey = config.api_auth_enabled && c.req.raw.body !== null;
        if (needsKey && !(given && (await findCaller(c, given)))) throw noKey(config);
        if (held >= config.compat_held) throw new Refusal(503, "Too many requests are under way.");
        held += 1;
        try {
          return await facade.answer({
            method: c.req.method,
            path: c.req.path.slice(base.length),
            query: new URL(c.req.url).searchParams,
            headers: c.req.raw.headers,
            key: given,
            bytes: () => readBytes(c.req.raw, config.max_request_bytes),
            text: () => readText(c.req.raw, config.max_request_bytes),
            form: () => readForm(c.req.raw, config.max_batch_bytes, "max_batch_bytes"),
            async api(request, init) {
              const answer = await api(request, init);
              isCounted ||= answer.status !== 429;
              return answer;
            },
            isStopping,
            signal: c.req.raw.signal,
          });
        } finally {
          held -= 1;
        }
      } catch (error) {
        if (error instanceof Refusal) return facade.refuse(error.status, error.message);
        if (error instanceof AppError) {
          return facade.refuse(errorStatus[error.code], error.message);
        }
        c.get("log").error("{name}: {reason}", { name, reason: describeError(error) });
        return facade.refuse(500, "The service failed; its log says why.");
      }
    });
  }
}

/**
 * Browsers say where a request comes from. Without this, a page of any site could run code as the caller of
 * `compat_key`, through the browser of a user who can reach the service.
 */
function isOfPage(c: Context): boolean {
  return c.req.header("Origin") !== undefined || c.req.header("Sec-Fetch-Site") !== undefined;
}
