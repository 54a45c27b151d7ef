import { availableParallelism } from "node:os";
import { join } from "node:path";
import { describeError } from "../shared/log-line.ts";
import { startLog } from "../shared/process/log.ts";
import type { AgentIdentity, LeasedBuild, LeasedSession } from "../shared/wire/leases.ts";
import type { AgentDeps } from "./agent.ts";
import { chooseSandbox, withGpus } from "./backends/choose.ts";
import { createContainerSource, createReaper, openSandbox } from "./backends/containers.ts";
import { createForks, type Forks, idCount, motherSpec } from "./backends/forks.ts";
import { createVolumeReaper } from "./backends/volumes.ts";
import { makeImage } from "./builds/build.ts";
import { createClient } from "./client/client.ts";
import { connectApi, createRotation, rotateToken } from "./client/join.ts";
import type { AgentConfig } from "./config.ts";
import { connectEngine, engineHost } from "./engine/engine.ts";
import { countErrors, createEngineMonitor } from "./engine/health.ts";
import { hostScope, isAlive } from "./host/alive.ts";
import { createFileStore, openSpoolDir } from "./host/files.ts";
import { createGpus } from "./host/gpus.ts";
import { buildLimits, createAdmission, createRuntimeChoice, mostMemory } from "./host/policy.ts";
import { createFurnishedImages } from "./images/furnish.ts";
import { collectImages, createImages, createInventory } from "./images/images.ts";
import {
  authFor,
  createFetchedImages,
  createImageFetcher,
  pushTimes,
  shareImage,
} from "./images/transfer.ts";
import { openPackageCache } from "./packages/cache.ts";
import { EngineError, type SandboxSource } from "./sandbox/sandbox.ts";
import { classify } from "./sandbox/verdict.ts";
import { createChangeSignal, systemClock } from "./waiting.ts";
import { createLanguageFinder } from "./work/place.ts";
import { createCrashReporter, createLeases } from "./work/leases.ts";

const BUILDS_AT_ONCE = 1;
const HOUR_MS = 3_600_000;

/** Creates everything that an agent works with from its configuration. `end` aborts all work. */
export async function createDeps(
  config: AgentConfig,
  agent: AgentIdentity,
  end: AbortSignal,
): Promise<AgentDeps> {
  const log = await startLog(config.log, "agent", (line) => void process.stderr.write(line));
  const clock = systemClock;
  const changes = createChangeSignal();
  const gpus = config.gpus.length > 0 ? createGpus(config.gpus, changes.notify) : null;
  const host = engineHost(config.dockerHost, process.env);
  const spool = await openSpoolDir(config.spoolDir, agent.id, hostScope);
  const { engine, errors } = countErrors(
    connectEngine(host, (message) => log.warn(message), spool.path),
  );
  const leases = createLeases({ clock, changes }, config.slots, config.intervals);
  const builds = createLeases<LeasedBuild>({ clock, changes }, BUILDS_AT_ONCE, config.intervals);
  const { maxSessions } = config;
  const calls = createLeases({ clock, changes }, maxSessions, config.intervals);
  const sessions = createLeases<LeasedSession>({ clock, changes }, maxSessions, config.intervals);
  const inventory = createInventory(engine, changes);
  const isHeld = (id: string): boolean => leases.has(id) || builds.has(id) || sandboxes.owns(id);
  const { nowMs } = clock;
  const owner = { agentName: agent.name, agentId: agent.id, isAlive, isHeld, nowMs };
  const reap = createReaper(engine, owner);
  const { forks: how } = config;
  const mother = motherSpec(
    agent,
    config.slots + maxSessions,
    mostMemory(config.policy),
    how.firstId,
  );
  const ownVolumes = how.mode === "engine" ? [] : [mother.rootfs, mother.bundles];
  const reapVolumes = createVolumeReaper(engine, ownVolumes, nowMs);
  const furnished = createFurnishedImages(engine, log);
  let collectedMs = -Infinity;
  async function collect(signal: AbortSignal): Promise<void> {
    if (inventory.asked() === null) return;
    collectedMs = clock.nowMs();
    const { asked: needed } = inventory;
    const { used } = furnished;
    await collectImages(
      { imageCalls: engine, needed, used, maxBytes: config.buildCacheBytes, nowMs, log },
      signal,
    );
  }
  const monitor = createEngineMonitor({
    ping: async (signal) => {
      await spool.check();
      await engine.ping(signal);
      await inventory.refresh(signal);
    },
    describe: async (signal) => {
      await spool.check();
      const health = await engine.describe(signal);
      await inventory.refresh(signal);
      // A job's time to start does not begin before it can be forked.
      if (how.mode === "zygote") await forks?.probed(signal);
      return health;
    },
    forkProblem: () => forkProblem(how.mode, forks),
    sweep: async (signal) => {
      const removed = await reap(signal);
      if (removed > 0) log.warn("removed {removed} left-over containers", { removed });
      // Containers of dead agents are removed first, so that a job that is leased again does not
      // run twice.
      await spool.removeLeftOvers(isAlive, reportCrash);
      if (clock.nowMs() - collectedMs >= HOUR_MS) await collect(signal);
      const volumes = await reapVolumes(signal);
      if (volumes > 0) log.info("removed {volumes} volumes of agents that are gone", { volumes });
    },
    errors,
    clock,
    changes,
    log,
  });
  const { allowed, cache: kept } = config.requirements;
  const cache = allowed && kept ? await openPackageCache(kept.folder, kept.maxBytes, log) : null;
  const open = furnished.startOn((spec, signal) => openSandbox(engine, spec, signal));
  const containers = createContainerSource({
    start: gpus ? withGpus(open, gpus, clock, end) : open,
    ...config.warmPool,
    // A start also waits for the kernel and the disk: one more start than cores keeps the cores
    // busy.
    starters: Math.min(16, availableParallelism() + 1),
    slots: config.slots,
    isEngineWell: () => monitor.slotsToOffer(1, 0) > 0 && monitor.breaker().state === "closed",
    checkEngine: monitor.checkSoon,
    changed: changes.notify,
    clock,
    log,
  });
  const { registry, maxImageBytes, maxFetchedBytes } = config;
  const fetched = createFetchedImages({
    imageCalls: engine,
    maxBytes: maxFetchedBytes,
    clock,
    log,
  });
  const images = createImages(
    engine,
    end,
    (reference) => authFor(registry, reference),
    fetched.used,
  );
  const limits = buildLimits(config.policy);
  const forks =
    how.mode === "engine"
      ? null
      : createForks({
          engine,
          mother,
          motherImage: (signal) => images.resolve(how.image, signal),
          ids: [how.firstId, idCount],
          packages: {
            maxBytes: config.requirements.maxBytes,
            keepsUnused: cache !== null,
            memoryBytes: limits.memoryBytes,
          },
          log,
        });
  const idleMs = config.warmPool.least > 0 ? config.warmPool.idleMs : 0;
  const sandboxes: SandboxSource =
    forks === null
      ? containers
      : chooseSandbox({
          containers,
          forks,
          mustFork: how.mode === "zygote",
          slots: config.slots,
          idleMs,
          clock,
          log,
        });
  const unpack = async (image: string, signal: AbortSignal): Promise<void> =>
    forks?.unpack(image, signal).catch((error: unknown) => {
      signal.throwIfAborted();
      log.warn("the image {image} is not unpacked yet: {reason}", {
        image,
        reason: describeError(error),
      });
    });
  const languages = createLanguageFinder({ sandboxes, leases, changes, log });
  const client = createClient({
    url: config.api.url,
    token: config.token,
    dispatcher: connectApi(config.api, process.env),
  });
  const reportCrash = createCrashReporter({ client, log, onReported: monitor.checkSoon }, end);
  const admission = createAdmission({ policy: config.policy, images, engine: monitor });
  const sharing = { client, imageCalls: engine, spool, registry, maxImageBytes, times: pushTimes };
  const fetching = {
    agent,
    admission,
    inventory,
    fetched,
    unpack,
    maxFetchedBytes,
    changes,
    clock,
    log,
  };
  const fetcher = createImageFetcher({ ...sharing, ...fetching }, end);
  const ready = Promise.withResolvers<void>();
  void ready.promise.then(() => process.send?.({ type: "ready", engine: monitor.health() }));
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
    engine: monitor,
    changes,
    clock,
    gpus,
    log,
    leases,
    builds,
    calls,
    sessions,
    openSessions: new Map(),
    inventory,
    makeImage: async (order, onLog, signal) => {
      await collect(signal);
      const made = await makeImage(engine, { ...order, limits }, onLog, signal);
      await unpack(made.digest, signal);
      return made;
    },
    shareImage: (build, image, say, signal) => shareImage(sharing, build, image, say, signal),
    fetchImages: fetcher.want,
    missingImages: fetcher.missing,
    pip: config.pip,
    requirements: { allowed, cache },
    files: createFileStore(join(spool.path, "input-files"), config.inputFilesBytes),
    images,
    admission,
    languages,
    sandboxes: {
      ...sandboxes,
      close: async () => {
        await languages.close();
        await sandboxes.close();
      },
    },
    spool,
    chooseRuntime: createRuntimeChoice(config.runtime, log),
    seccomp: config.seccomp,
    judge: classify,
    polled: ready.resolve,
    rotateToken: createRotation({ log, clock }, () => rotateToken(process.env)),
    drainGraceMs: config.drainGraceMs,
  };
}

/**
 * Why the agent forks no jobs; null if it does.
 *
 * @throws EngineError if it is to fork all jobs, so that it takes none.
 */
function forkProblem(mode: AgentConfig["forks"]["mode"], forks: Forks | null): string | null {
  if (forks === null) return "container_backend is engine";
  const problem = forks.problem();
  if (problem === null || mode === "auto") return problem;
  throw new EngineError(
    "other",
    `container_backend is zygote, and jobs are not forked: ${problem}`,
  );
}
