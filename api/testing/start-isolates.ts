import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { parse } from "smol-toml";
import {
  type Harness,
  type RunningService,
  startHarness,
  type WorkerInput,
} from "./start-worker.ts";

/** Isolates of one deployment, which share database, bucket and Durable Object, and no memory. */
export interface Isolates extends RunningService {
  databaseUrl: string;
  harness: Harness;
}

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
        },
      },
      airlock,
      another("second", { ARTIFACTS: "front" }),
      another("alone", { WAKES: "front" }),
    ];
  });
}
