import { mkdtemp, rm } from "node:fs/promises";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { built, root } from "./build-worker.ts";
import { startSqld } from "./start-sqld.ts";

/** A running service under test; `close` ends its processes and removes its data. */
export interface RunningService {
  url: string;
  close(): Promise<void>;
}

export interface RunningWorker extends RunningService {
  databaseUrl: string;
  /** Fires the cron trigger, and waits for its end. */
  scheduled(): Promise<{ outcome: string }>;
  bindings(): Promise<Record<string, unknown>>;
}

/** What wrangler runs a worker with. Compiling with its own types takes minutes. */
interface Miniflare {
  ready: Promise<URL>;
  getBindings(): Promise<Record<string, unknown>>;
  getWorker(): Promise<{ scheduled(options: object): Promise<{ outcome: string }> }>;
  dispose(): Promise<void>;
}

const require = createRequire(import.meta.url);

/**
 * Starts the deployment of wrangler.toml in workerd, with a new libSQL server (sqld). Wrangler's own
 * harness would pass each query of the worker through this process, which takes twice the time.
 */
export async function startWorker(vars: Record<string, string>): Promise<RunningWorker> {
  const folder = await mkdtemp(join(tmpdir(), "airlock-worker-"));
  const [database, { folder: bundle }] = await Promise.all([
    startSqld(join(folder, "db")),
    built(),
  ]);
  const miniflare = newMiniflare(bundle, workerVars(database.url, vars));
  const url = await miniflare.ready;
  return {
    url: url.origin,
    databaseUrl: database.url,
    scheduled: async () => (await miniflare.getWorker()).scheduled({ cron: "* * * * *" }),
    bindings: () => miniflare.getBindings(),
    async close() {
      await Promise.all([miniflare.dispose(), database.close()]);
      await rm(folder, { recursive: true, force: true });
    },
  };
}

/** Loads wrangler only here: that takes a second. */
function newMiniflare(bundle: string, vars: Record<string, string>): Miniflare {
  const { unstable_getMiniflareWorkerOptions: optionsOf } = require("wrangler") as {
    unstable_getMiniflareWorkerOptions: (configPath: string) => {
      workerOptions: { bindings: Record<string, unknown> };
    };
  };
  const wrangler = createRequire(require.resolve("wrangler/package.json"));
  const { Miniflare, convertV4MiniflareOptions } = wrangler("miniflare") as {
    Miniflare: new (options: object) => Miniflare;
    convertV4MiniflareOptions: (options: object) => object;
  };
  const { workerOptions } = optionsOf(join(root, "wrangler.toml"));
  return new Miniflare(
    convertV4MiniflareOptions({
      ...workerOptions,
      bindings: { ...workerOptions.bindings, ...vars },
      modules: [{ type: "ESModule", path: join(bundle, "worker.js") }],
      modulesRoot: bundle,
      logRequests: false,
    }),
  );
}

/** The variables of a worker under test. By default it needs no keys. */
export function workerVars(
  databaseUrl: string,
  vars: Record<string, string>,
): Record<string, string> {
  return {
    AIRLOCK_DATABASE_URL: databaseUrl,
    AIRLOCK_API_AUTH_ENABLED: "false",
    AIRLOCK_ALLOW_UNAUTHENTICATED_NETWORK_ACCESS: "true",
    ...vars,
  };
}
