import { execFile } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { startSqld } from "./start-sqld.ts";

/** A running service under test; `close` ends its processes and removes its data. */
export interface RunningService {
  url: string;
  close(): Promise<void>;
}

export interface RunningWorker extends RunningService {
  databaseUrl: string;
  worker: WorkerHandle;
}

/**
 * The part of wrangler's test harness that tests need. Compiling with its own types takes minutes.
 * Source: https://developers.cloudflare.com/workers/testing/
 */
export interface Harness {
  listen(): Promise<{ url: URL }>;
  getWorker(name?: string): WorkerHandle;
  close(): Promise<void>;
}
export interface WorkerHandle {
  scheduled(options: { cron: string }): Promise<{ outcome: string }>;
  getEnv(): Promise<Record<string, unknown>>;
  /** Ends a running Durable Object. Its sockets break, unless it only sleeps. */
  evictDurableObject(
    className: string,
    options: { name: string; webSockets: "close" | "hibernate" },
  ): Promise<void>;
}

/** A worker as the harness describes it. */
export interface WorkerInput {
  configPath: string;
  prebuiltWorkerDir: string;
  vars: Record<string, string>;
  /** Services that replace bindings, by name. */
  bindingOverrides?: Record<string, string>;
}

const require = createRequire(import.meta.url);
const { createTestHarness } = require("wrangler") as {
  createTestHarness: (options: { root: string; workers: object[] }) => Harness;
};
const root = fileURLToPath(new URL("../..", import.meta.url));

/** Keeps wrangler from using the network. */
Object.assign(process.env, {
  CLOUDFLARE_CF_FETCH_ENABLED: "false",
  WRANGLER_SEND_METRICS: "false",
  WRANGLER_HIDE_BANNER: "true",
  WRANGLER_LOG: "error",
});

/** Starts the deployment of wrangler.toml in workerd, with a new libSQL server (sqld). */
export async function startWorker(vars: Record<string, string>): Promise<RunningWorker> {
  const { harness, ...running } = await startHarness(vars, (airlock) => [airlock]);
  return { ...running, worker: harness.getWorker() };
}

/** Starts workers made from wrangler.toml in workerd; the first one gets the requests. */
export async function startHarness(
  vars: Record<string, string>,
  workers: (airlock: WorkerInput, folder: string) => object[],
): Promise<RunningService & { databaseUrl: string; harness: Harness }> {
  const folder = await mkdtemp(join(tmpdir(), "airlock-worker-"));
  const [database, { folder: prebuiltWorkerDir }] = await Promise.all([
    startSqld(join(folder, "db")),
    built(),
  ]);
  const airlock = {
    configPath: join(root, "wrangler.toml"),
    prebuiltWorkerDir,
    vars: workerVars(database.url, vars),
  };
  const harness = createTestHarness({ root, workers: workers(airlock, folder) });
  const { url } = await harness.listen();
  return {
    url: url.origin,
    databaseUrl: database.url,
    harness,
    async close() {
      await Promise.all([harness.close(), database.close()]);
      await rm(folder, { recursive: true, force: true });
    },
  };
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

let building: Promise<Built> | undefined;

/** The files that `wrangler deploy` would send, built once per process. */
export function built(): Promise<Built> {
  building ??= build();
  return building;
}

export interface Built {
  folder: string;
  /** Output of wrangler about it. */
  said: string;
}

async function build(): Promise<Built> {
  const folder = mkdtempSync(join(tmpdir(), "airlock-bundle-"));
  process.once("exit", () => rmSync(folder, { recursive: true, force: true }));
  const cli = join(require.resolve("wrangler/package.json"), "../wrangler-dist/cli.js");
  const deploy = ["deploy", "--dry-run", `--outdir=${folder}`];
  const { stdout } = await promisify(execFile)(
    process.execPath,
    ["--no-warnings", cli, ...deploy],
    { cwd: root, env: { ...process.env, WRANGLER_LOG: "log" } },
  );
  return { folder, said: stdout };
}
