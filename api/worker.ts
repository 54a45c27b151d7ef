import { waitUntil } from "cloudflare:workers";
import { AsyncLocalStorage } from "node:async_hooks";
import type { ExecutionContext } from "hono";
import { ConfigError, loadConfig } from "../shared/config/config.ts";
import { startLog } from "../shared/process/log.ts";
import { createApp } from "./app.ts";
import { type Deps, silenceMs } from "./deps.ts";
import { checkExposure, requireSomeKey } from "./http/identity.ts";
import { newId, sha256 } from "./ids.ts";
import { artifactBucket, type Bucket } from "./platform/artifacts.worker.ts";
import { type Lanes, postByFetch, serverClient } from "./platform/libsql-server.ts";
import {
  objectNotifier,
  SendingObject,
  wakeObject,
  type WakesObjects,
  type WebhooksObjects,
} from "./platform/objects.worker.ts";
import { database, remoteTimeoutMs } from "./store/database.ts";
import { sweep } from "./sweep.ts";
import { hasReceivers, wakingSender, wantedTypes } from "./webhooks/deliver.ts";
import { keepWantedTypes } from "./webhooks/sql.ts";

export { Wakes } from "./platform/objects.worker.ts";

/** Sends webhooks: a Durable Object, because a worker itself runs only while it answers. */
export class Webhooks extends SendingObject {
  protected async service(): Promise<Deps> {
    service ??= build(this.env as Env);
    return (await service).deps;
  }
}

/** Bindings of wrangler.toml; every other variable is a configuration key, `AIRLOCK_<KEY>`. */
interface Env extends Record<string, unknown> {
  ARTIFACTS: Bucket;
  ASSETS: { fetch(url: string): Promise<Response> };
  WAKES: WakesObjects;
  /** Missing in a wrangler.toml from before webhooks. */
  WEBHOOKS?: WebhooksObjects;
}

/** Largest body of a request on most plans. Source: https://developers.cloudflare.com/workers/platform/limits/ */
const platformBodyBytes = 100_000_000;

const notConfigured = "Airlock is not configured yet: `wrangler tail` shows what is missing.\n";

/** What waits for the database in each request. */
const waiting = new AsyncLocalStorage<{ lanes?: Lanes }>();

/**
 * When a client hangs up, the runtime never lets the calls of its request end, so no other request may wait for them.
 * What runs outside of a request waits for nobody.
 */
function lanesOfRequest(make: () => Lanes): Lanes {
  const request = waiting.getStore();
  return request ? (request.lanes ??= make()) : make();
}

interface Service {
  app: ReturnType<typeof createApp>;
  deps: Deps;
}
let service: Promise<Service> | undefined;
/** The database knows which webhooks are wanted. The cron trigger says it as well. */
let hasAnnounced = false;
let hasSomeKey = false;

/** The API on Cloudflare Workers: one service per isolate, built by its first event. */
export default {
  fetch(request: Request, env: Env, context: ExecutionContext): Promise<Response> {
    return waiting.run({}, () => answerTo(request, env, context));
  },
  /** The cron trigger: does everything that depends on time alone. */
  async scheduled(_event: unknown, env: Env): Promise<void> {
    service ??= build(env);
    const { deps } = await service;
    await keepWantedTypes(deps.db, wantedTypes(deps.config));
    await sweep(deps);
    if (env.WEBHOOKS && hasReceivers(deps.config)) await wakeObject(env.WEBHOOKS, deps);
  },
};

async function answerTo(request: Request, env: Env, context: ExecutionContext): Promise<Response> {
  service ??= build(env);
  try {
    const { deps } = await service;
    // Each request asks for itself: in workerd, none may wait for another one.
    if (!hasSomeKey) {
      await requireSomeKey(deps).catch((error: unknown) => {
        if (error instanceof ConfigError) throw error;
      });
    }
    hasSomeKey = true;
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error;
    console.error(`airlock: ${error.message}`);
    return new Response(notConfigured, { status: 503, headers: { "Retry-After": "60" } });
  }
  const { app, deps } = await service;
  if (!hasAnnounced && hasReceivers(deps.config)) {
    hasAnnounced = true;
    context.waitUntil(keepWantedTypes(deps.db, wantedTypes(deps.config)).catch(() => {}));
  }
  const answer = app.fetch(request, env, context);
  // When a client hangs up, the runtime drops everything that is not awaited here, the cancellation included.
  context.waitUntil(Promise.resolve(answer));
  return answer;
}

async function build(env: Env): Promise<Service> {
  // Anyone can reach a deployed Worker.
  const told = loadConfig({}, textVariables(env));
  const max_file_bytes = Math.min(told.max_file_bytes, platformBodyBytes);
  const config = { ...told, host: "0.0.0.0", max_file_bytes };
  if (!config.database_url || config.database_url.startsWith("file:")) {
    throw new ConfigError("AIRLOCK_DATABASE_URL must be the address of a libSQL server");
  }
  const warning = checkExposure(config);
  const client = serverClient({
    url: config.database_url,
    authToken: config.database_auth_token,
    post: postByFetch(remoteTimeoutMs),
    nextTick: () => Promise.resolve(),
    lanes: lanesOfRequest,
  });
  const log = await startLog(config, "api", (line) => console.log(line.trimEnd()));
  if (warning) log.warn(warning);
  const { WEBHOOKS: webhooks } = env;
  if (!webhooks && hasReceivers(config)) {
    throw new ConfigError(
      "webhooks need the Durable Object WEBHOOKS: take its lines from Airlock's wrangler.toml",
    );
  }
  const wakeWebhooks = (): void => webhooks && waitUntil(wakeObject(webhooks, { log }));
  const deps: Deps = {
    config,
    db: database(client),
    artifacts: artifactBucket(env.ARTIFACTS),
    notifier: wakingSender(objectNotifier(env.WAKES, log), config, wakeWebhooks),
    log,
    now: Date.now,
    newId,
    sha256,
    clientAddress: (c) => c.req.header("CF-Connecting-IP") ?? "unknown",
    isStopping: () => false,
    isDraining: () => false,
    streamsEnd: new AbortController().signal,
    silenceMs,
    waitUntil,
    // On Workers, a request must not wait for a promise of another request.
    shareRead: (_key, read) => read(),
    processMetrics: undefined,
    asset: async (name) => {
      const { ok, body } = await env.ASSETS.fetch(`https://assets/${name}`);
      return ok ? (body ?? undefined) : undefined;
    },
  };
  return { app: createApp(deps), deps };
}

function textVariables(env: Env): Record<string, string | undefined> {
  return Object.fromEntries(
    Object.entries(env).map(([name, value]) => [
      name,
      typeof value === "string" ? value : undefined,
    ]),
  );
}
