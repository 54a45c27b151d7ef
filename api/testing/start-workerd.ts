import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import type { Readable } from "node:stream";
import { parse } from "smol-toml";
import { built } from "./build-worker.ts";
import { type RunningDatabase, startSqld } from "./start-sqld.ts";
import { type RunningService, workerVars } from "./start-worker.ts";

const require = createRequire(createRequire(import.meta.url).resolve("wrangler/package.json"));
const { default: workerd } = require("workerd") as { default: string };

/**
 * Starts the deployment of wrangler.toml in workerd alone, with a new libSQL server. The proxy of
 * `wrangler dev` does not pass on that a client hung up. There is no bucket and no assets.
 *
 * @param hasWakes Whether it reaches the Durable Object of the wake-ups.
 */
export async function startWorkerd(
  vars: Record<string, string>,
  hasWakes: boolean,
): Promise<RunningService & { databaseUrl: string; database: RunningDatabase }> {
  const folder = await mkdtemp(join(tmpdir(), "airlock-workerd-"));
  const [database, { folder: bundle }] = await Promise.all([
    startSqld(join(folder, "db")),
    built(),
  ]);
  const config = join(folder, "config.capnp");
  await writeFile(join(folder, "worker.js"), await readFile(join(bundle, "worker.js")));
  await writeFile(config, await capnp(workerVars(database.url, vars), hasWakes));
  const child = spawn(workerd, ["serve", "--control-fd=3", config], {
    stdio: ["ignore", "inherit", "inherit", "pipe"],
  });
  const exited = once(child, "exit");
  return {
    url: `http://127.0.0.1:${await portOf(child.stdio[3] as Readable)}`,
    databaseUrl: database.url,
    database,
    async close() {
      // A graceful end would wait for polls, because it does not know that their agents are gone.
      child.kill("SIGKILL");
      await exited;
      await database.close();
      await rm(folder, { recursive: true, force: true });
    },
  };
}

/** The port that workerd reports when it listens. */
async function portOf(control: Readable): Promise<number> {
  for await (const line of createInterface(control)) {
    const told = JSON.parse(line) as { event: string; port: number };
    if (told.event === "listen") return told.port;
  }
  throw new Error("workerd ended before it listened");
}

/** Source: https://github.com/cloudflare/workerd/blob/main/src/workerd/server/workerd.capnp */
async function capnp(vars: Record<string, string>, hasWakes: boolean): Promise<string> {
  const deployed = parse(await readFile("wrangler.toml", "utf8")) as {
    compatibility_date: string;
    compatibility_flags: string[];
  };
  const wakes = '(name = "WAKES", durableObjectNamespace = "Wakes"),';
  const texts = Object.entries(vars).map(
    ([name, value]) => `(name = ${quoted(name)}, text = ${quoted(value)})`,
  );
  return `using Workerd = import "/workerd/workerd.capnp";
const config :Workerd.Config = (
  services = [
    (name = "airlock", worker = (
      modules = [(name = "worker.js", esModule = embed "worker.js")],
      compatibilityDate = ${quoted(deployed.compatibility_date)},
      compatibilityFlags = [${deployed.compatibility_flags.map(quoted).join(", ")}],
      bindings = [
        ${hasWakes ? wakes : ""}
        (name = "WEBHOOKS", durableObjectNamespace = "Webhooks"),
        ${texts.join(",\n        ")},
      ],
      durableObjectNamespaces = [
        (className = "Wakes", uniqueKey = "wakes", enableSql = true),
        (className = "Webhooks", uniqueKey = "webhooks", enableSql = true),
      ],
      durableObjectStorage = (inMemory = void),
    )),
    (name = "internet", network = (allow = ["private"])),
  ],
  sockets = [(name = "http", address = "127.0.0.1:0", http = (), service = "airlock")],
);
`;
}

/** Cap'n Proto text has the escapes of C, which include the JSON escapes that occur here. */
const quoted = (text: string): string => JSON.stringify(text);
