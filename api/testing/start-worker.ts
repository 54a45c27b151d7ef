import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { connect, createServer, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import type { Readable } from "node:stream";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { parse } from "smol-toml";
import { WORKER_BUNDLE } from "../../shared/testing/program.ts";
import { type RunningDatabase, startSqld } from "./start-stores.ts";

/** A running service under test; `close` ends its processes and removes its data. */
export interface RunningService {
  url: string;
  close(): Promise<void>;
}

interface RunningWorker extends RunningService {
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

const requireHere = createRequire(import.meta.url);

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
  const { unstable_getMiniflareWorkerOptions: optionsOf } = requireHere("wrangler") as {
    unstable_getMiniflareWorkerOptions: (configPath: string) => {
      workerOptions: { bindings: Record<string, unknown> };
    };
  };
  const wrangler = createRequire(requireHere.resolve("wrangler/package.json"));
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

const requireOfWrangler = createRequire(
  createRequire(import.meta.url).resolve("wrangler/package.json"),
);
const { default: workerd } = requireOfWrangler("workerd") as { default: string };

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

export const root = fileURLToPath(new URL("../..", import.meta.url));

/** Keeps wrangler from using the network. */
Object.assign(process.env, {
  CLOUDFLARE_CF_FETCH_ENABLED: "false",
  WRANGLER_SEND_METRICS: "false",
  WRANGLER_HIDE_BANNER: "true",
  WRANGLER_LOG: "error",
});

interface Built {
  folder: string;
  /** Output of wrangler about it. */
  said: string;
}

let building: Promise<Built> | undefined;

/** The files that `wrangler deploy` would send, built once per test run; outside one, once per process. */
export function built(): Promise<Built> {
  building ??= buildOnce(process.env[WORKER_BUNDLE] ?? ownFolder());
  return building;
}

function ownFolder(): string {
  const folder = mkdtempSync(join(tmpdir(), "airlock-bundle-"));
  process.once("exit", () => rmSync(folder, { recursive: true, force: true }));
  return folder;
}

/** The first process that asks builds; the others wait until it has, or has died. */
async function buildOnce(folder: string): Promise<Built> {
  const waiting = new Set<Socket>();
  // The kernel frees an abstract socket when its owner ends in any way.
  const path = `\0${folder}`;
  const lock = createServer((socket) => waiting.add(socket.on("error", () => {}))).listen({ path });
  try {
    await once(lock, "listening");
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "EADDRINUSE") throw error;
    const waiter = connect({ path }).on("error", () => {});
    await new Promise((resolve) => waiter.once("close", resolve));
    return buildOnce(folder);
  }
  try {
    // It is written last.
    const said = join(folder, "said.txt");
    const bundle = join(folder, "bundle");
    if (!existsSync(said)) writeFileSync(said, await build(bundle));
    return { folder: bundle, said: readFileSync(said, "utf8") };
  } finally {
    lock.close();
    for (const socket of waiting) socket.destroy();
  }
}

async function build(folder: string): Promise<string> {
  const wrangler = createRequire(import.meta.url).resolve("wrangler/package.json");
  const cli = join(wrangler, "../wrangler-dist/cli.js");
  const { stdout } = await promisify(execFile)(
    process.execPath,
    ["--no-warnings", cli, "deploy", "--dry-run", `--outdir=${folder}`],
    { cwd: root, env: { ...process.env, WRANGLER_LOG: "log" } },
  );
  return stdout;
}
