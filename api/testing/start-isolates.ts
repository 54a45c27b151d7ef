import { readFileSync, writeFileSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { parse } from "smol-toml";
import { startSqld } from "./start-stores.ts";
import { built, root, type RunningService, workerVars } from "./start-worker.ts";

/** Isolates of one deployment, which share database, bucket and Durable Object, and no memory. */
export interface Isolates extends RunningService {
  databaseUrl: string;
  harness: Harness;
}

/**
 * The part of wrangler's test harness that tests need. Compiling with its own types takes minutes.
 * Source: https://developers.cloudflare.com/workers/testing/
 */
interface Harness {
  listen(): Promise<{ url: URL }>;
  getWorker(name?: string): WorkerHandle;
  close(): Promise<void>;
}
interface WorkerHandle {
  /** Ends a running Durable Object. Its sockets break, unless it only sleeps. */
  evictDurableObject(
    className: string,
    options: { name: string; webSockets: "close" | "hibernate" },
  ): Promise<void>;
}

/** A worker as the harness describes it. */
interface WorkerInput {
  configPath: string;
  prebuiltWorkerDir: string;
  vars: Record<string, string>;
  /** Services that replace bindings, by name. */
  bindingOverrides?: Record<string, string>;
}

const { createTestHarness } = createRequire(import.meta.url)("wrangler") as {
  createTestHarness: (options: { root: string; workers: object[] }) => Harness;
};
const front = fileURLToPath(new URL("isolates.worker.ts", import.meta.url));

/**
 * Starts the API in three isolates, at `/first`, `/second` and `/alone`. The bucket of the second can be
 * made to fail (isolates.worker.ts); the last cannot reach the Durable Object.
 */
export async function startIsolates(vars: Record<string, string>): Promise<Isolates> {
  return startHarness(vars, (airlock, folder) => {
    const toml = readFileSync(airlock.configPath, "utf8");
    const config = parse(toml) as Record<string, unknown> & {
      durable_objects: { bindings: object[] };
    };
    const another = (name: string, bindingOverrides: Record<string, string>): WorkerInput => {
      const path = join(folder, `${name}.json`);
      const bindings = config.durable_objects.bindings.map((binding) => ({
        ...binding,
        script_name: "airlock",
      }));
      const { migrations: _, assets: __, triggers: ___, ...rest } = config;
      const changed = { ...rest, name, main: "worker.ts", durable_objects: { bindings } };
      writeFileSync(path, JSON.stringify(changed));
      return { ...airlock, configPath: path, bindingOverrides };
    };
    return [
      {
        config: {
          name: "front",
          main: front,
          compatibility_date: config["compatibility_date"],
          r2_buckets: [{ binding: "BUCKET", bucket_name: "airlock-artifacts" }],
          services: [
            { binding: "first", service: "airlock" },
            { binding: "second", service: "second" },
            { binding: "alone", service: "alone" },
          ],
          durable_objects: {
            bindings: [{ name: "WAKES", class_name: "Wakes", script_name: "airlock" }],
          },
        },
      },
      airlock,
      another("second", { ARTIFACTS: "front" }),
      another("alone", { WAKES: "front" }),
    ];
  });
}

/** Starts workers made from wrangler.toml in workerd; the first one gets the requests. */
async function startHarness(
  vars: Record<string, string>,
  workers: (airlock: WorkerInput, folder: string) => object[],
): Promise<Isolates> {
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
