import { randomUUID } from "node:crypto";
import { availableParallelism } from "node:os";
import manifest from "../package.json" with { type: "json" };
import { ConfigError } from "../shared/config.ts";
import type { AgentIdentity, LeasedBuild } from "../shared/lease.ts";
import { describeError } from "../shared/log-line.ts";
import { startLog } from "../shared/process/log.ts";
import { connectApi } from "./api-connection.ts";
import { createAdmission } from "./admission.ts";
import { type AgentDeps, type AgentSignals, runAgent } from "./agent.ts";
import { isAlive, showAlive } from "./alive.ts";
import { ApiError } from "./api-error.ts";
import { createChanges } from "./changes.ts";
import { createClient } from "./client.ts";
import { systemClock } from "./clock.ts";
import { type AgentConfig, configHelp, readAgentConfig } from "./config.ts";
import { countErrors } from "./engine-errors.ts";
import { engineHost } from "./engine-host.ts";
import { createEngineWatch } from "./engine-watch.ts";
import { createImageFetcher } from "./fetch-images.ts";
import { createFetchedImages } from "./fetched-images.ts";
import { createGpus } from "./gpus.ts";
import { withGpus } from "./gpu-sandbox.ts";
import { createImages, type Images } from "./images.ts";
import { createInventory } from "./inventory.ts";
import { joinApi, rotateToken } from "./join.ts";
import { createLeases } from "./leases.ts";
import { openPackageCache } from "./package-cache.ts";
import { buildLimits } from "./policy.ts";
import { createPool } from "./pool.ts";
import { authFor } from "./registry.ts";
import { createRuntimeChoice } from "./runtime-choice.ts";
import { classify } from "./sandbox/classify.ts";
import { connectEngine } from "./sandbox/engine.ts";
import { makeImage } from "./sandbox/image-build.ts";
import { reapContainers } from "./sandbox/reap.ts";
import { openSandbox } from "./sandbox/sandbox.ts";
import { pushTimes, shareImage } from "./share-image.ts";
import { defaultSpoolDir, openSpoolDir } from "./spool-dir.ts";
import { listenForStop } from "./stop-signals.ts";

const help = `Usage: npm run agent [-- <command>]

  join --url <address> --code <code> [--name <name>]
            exchanges a one-time code for this host's own token, kept in data_dir; "--code -" reads
            the code from standard input
  rotate    replaces that token, also while the agent runs

Runs jobs for an Airlock API on this host's container engine until SIGTERM or SIGINT: then running
jobs may finish within drain_grace_s; a second signal ends it at once.

Read from the environment, or as keys in lower case without AIRLOCK_ from airlock.toml:
${configHelp()}

Exit codes: 0 stopped, 1 wrong configuration, 2 token or code refused, 3 another version of the
protocol than the API's, 70 an error of its own (starting it again may help), 130 stopped by a
second signal.
`;

const BUILDS_AT_ONCE = 1;

const exitCodes = {
  stopped: 0,
  config: 1,
  unauthorized: 2,
  incompatible: 3,
  failed: 70,
  aborted: 130,
} as const;

async function main(): Promise<number> {
  if (process.argv.includes("--help") || process.argv.includes("-h")) {
    process.stdout.write(help);
    return exitCodes.stopped;
  }
  const signals = listenForStop(process, systemClock);
  const [command, ...rest] = process.argv.slice(2);
  if (command !== undefined) return obey(command, rest);
  const config = readAgentConfig(process.env);
  const agent = {
    id: randomUUID(),
    name: config.name,
    version: manifest.version,
    labels: config.labels,
    accepts: {
      job_types: config.policy.agent_job_types ?? null,
      builds: config.policy.agent_builds,
    },
  };
  using _life = await showAlive(agent.id);
  await serve(config, agent, signals);
  return signals.abort.aborted ? exitCodes.aborted : exitCodes.stopped;
}

async function obey(command: string, args: string[]): Promise<number> {
  const { env } = process;
  if (command === "join") process.stdout.write(`airlock: ${await joinApi(args, env)}\n`);
  else if (command === "rotate") process.stdout.write(`airlock: ${await rotateToken(env)}\n`);
  else throw new ConfigError(`unknown command ${command}; npm run agent -- --help shows how`);
  return exitCodes.stopped;
}

async function serve(config: AgentConfig, agent: AgentIdentity, signals: AgentSignals) {
  const deps = await createDeps(config, agent, signals.abort);
  try {
    await runAgent(deps, signals);
  } finally {
    await deps.pool.close();
    await deps.client.close();
    await deps.spool.remove();
  }
}

async function createDeps(
  config: AgentConfig,
  agent: AgentIdentity,
  end: AbortSignal,
): Promise<AgentDeps> {
  const log = await startLog(config.log, "agent", (line) => void process.stderr.write(line));
  const clock = systemClock;
  const changes = createChanges();
  const gpus = createGpus(config.gpus, changes.tell);
  const host = engineHost(config.dockerHost, process.env);
  const spool = await openSpoolDir(config.spoolDir ?? defaultSpoolDir(), agent.id, isAlive);
  const { engine, errors } = countErrors(
    connectEngine(host, (message) => log.warn(message), spool.path),
  );
  const leases = createLeases({ clock, changes }, config.slots, config.intervals);
  const builds = createLeases<LeasedBuild>({ clock, changes }, BUILDS_AT_ONCE, config.intervals);
  const inventory = createInventory(engine, changes);
  const isHeld = (id: string): boolean => leases.has(id) || builds.has(id) || pool.owns(id);
  const owner = { agentName: agent.name, agentId: agent.id, isAlive, isHeld };
  const watch = createEngineWatch({
    probe: async (signal) => {
      await spool.check();
      const health = await engine.describe(signal);
      await inventory.refresh(signal);
      return health;
    },
    sweep: async (signal) => {
      const removed = await reapContainers(engine, owner, signal);
      if (removed > 0) log.warn("removed {removed} left-over containers", { removed });
    },
    errors,
    clock,
    changes,
    log,
  });
  const { allowed, cache: kept } = config.requirements;
  const cache = allowed && kept ? await openPackageCache(kept.folder, kept.maxBytes, log) : null;
  const pool = createPool({
    start: withGpus((spec, signal) => openSandbox(engine, spec, signal), gpus, clock, end),
    // A start waits for the kernel and the disk, too: one more than cores keeps them busy.
    starters: Math.min(16, availableParallelism() + 1),
    size: { ...config.warmPool, slots: config.slots },
    idleMs: config.warmPool.idleMs,
    isEngineWell: () => watch.admits(1, 0) > 0 && watch.breaker().state === "closed",
    doubted: watch.doubted,
    clock,
    changes,
    log,
  });
  const { registry, maxImageBytes, maxFetchedBytes } = config;
  const fetched = createFetchedImages({
    imageCalls: engine,
    maxBytes: maxFetchedBytes,
    clock,
    log,
  });
  const found = createImages(engine, end, (reference) => authFor(registry, reference));
  const images: Images = {
    ...found,
    resolve: (reference, signal) => {
      fetched.used(reference);
      return found.resolve(reference, signal);
    },
  };
  const client = createClient({
    url: config.api.url,
    token: config.token,
    dispatcher: connectApi(config.api, process.env),
  });
  const admission = createAdmission({ policy: config.policy, images, engine: watch });
  const limits = buildLimits(config.policy);
  const sharing = { client, imageCalls: engine, spool, registry, maxImageBytes, times: pushTimes };
  const fetching = { agent, admission, inventory, fetched, maxFetchedBytes, changes, clock, log };
  const fetcher = createImageFetcher({ ...sharing, ...fetching }, end);
  const ready = Promise.withResolvers<void>();
  void ready.promise.then(() => process.send?.({ type: "ready", engine: watch.health() }));
  log.info("agent {name} ({id}) works for {api} on {host}, {slots} jobs at once", {
    ...agent,
    api: config.api.url,
    host,
    slots: config.slots,
  });
  if (!config.seccomp) log.warn("enable_seccomp is false: the code may make any system call");
  return {
    agent,
    client,
    engine: watch,
    changes,
    clock,
    gpus,
    log,
    leases,
    builds,
    inventory,
    makeImage: (order, onLog, signal) => makeImage(engine, { ...order, limits }, onLog, signal),
    shareImage: (build, image, say, signal) => shareImage(sharing, build, image, say, signal),
    fetchImages: fetcher.want,
    missingImages: fetcher.missing,
    pip: config.pip,
    requirements: { allowed, cache },
    images,
    admission,
    pool,
    spool,
    chooseRuntime: createRuntimeChoice(config.runtime, log),
    seccomp: config.seccomp,
    judge: classify,
    polled: ready.resolve,
    drainGraceMs: config.drainGraceMs,
  };
}

/** One line for what the operator can mend, and its exit code. */
function explain(error: unknown): { readonly text: string; readonly exitCode: number } {
  if (error instanceof ConfigError) return { text: error.message, exitCode: exitCodes.config };
  if (error instanceof ApiError) {
    if (error.kind === "incompatible") {
      return { text: error.message, exitCode: exitCodes.incompatible };
    }
    if (error.kind !== "unauthorized") return { text: describeError(error), exitCode: 1 };
    if (process.argv[2] === "join")
      return { text: error.message, exitCode: exitCodes.unauthorized };
    const text = `${error.message.replace(/\.$/, "")}; AIRLOCK_AGENT_TOKEN must be one of the API's agent_tokens, or a host that joined must join anew`;
    return { text, exitCode: exitCodes.unauthorized };
  }
  return { text: describeError(error), exitCode: exitCodes.failed };
}

function fail(error: unknown): void {
  const { text, exitCode } = explain(error);
  process.stderr.write(`airlock agent: ${text}\n`);
  process.exit(exitCode);
}

process.once("uncaughtException", fail);
main().then((exitCode) => process.exit(exitCode), fail);
