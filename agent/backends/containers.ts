import { randomUUID } from "node:crypto";
import type { Logger } from "@logtape/logtape";
import { describeError } from "../../shared/log-line.ts";
import { putLast } from "../../shared/lru.ts";
import type { PoolKind } from "../../shared/wire/health.ts";
import { type ContainerEntry, type ContainerState, type Engine, linkOf } from "../engine/engine.ts";
import { type Bytecode, supervisorProgram } from "../python/program.ts";
import { openConversation } from "../sandbox/conversation.ts";
import { encodeFrame } from "../sandbox/frames.ts";
import { noMemory } from "../sandbox/install-packages.ts";
import { InstallError } from "../sandbox/job.ts";
import {
  EngineError,
  labels,
  namePrefix,
  type Sandbox,
  type SandboxRequest,
  type SandboxSource,
  type SandboxSpec,
} from "../sandbox/sandbox.ts";
import { isCutShort, type RunReport } from "../sandbox/verdict.ts";
import type { Clock } from "../waiting.ts";
import { containerProfile } from "./profiles.ts";
import { createBackgroundTasks, createReadyList, type KindCount, poolKindOf } from "./ready.ts";

export type StartSandbox = (spec: SandboxSpec, signal: AbortSignal) => Promise<Sandbox>;

interface ContainerSourceDeps {
  readonly start: StartSandbox;
  /** Containers that are kept ready for each kind of job, and for all kinds together. */
  readonly least: number;
  readonly most: number;
  /** How long a kind is kept ready after its last job, and the longest that a container waits. */
  readonly idleMs: number;
  /** How many containers may be starting ahead at once. */
  readonly starters: number;
  readonly slots: number;
  /** Whether the engine works well enough to start containers ahead. */
  readonly isEngineWell: () => boolean;
  /** Is called when a start or removal failed that no job waits for, so that the engine is checked. */
  readonly checkEngine: () => void;
  /** Is called when a container is ready or gone. */
  readonly changed: () => void;
  readonly clock: Clock;
  readonly log: Logger;
}

/** How long starts in progress may take after `close`: the engine may keep the container if a start is aborted. */
const closeGraceMs = 5000;

/** Gives each job a container of its own. Some are ready before their jobs come. */
export function createContainerSource(deps: ContainerSourceDeps): SandboxSource {
  const { least, most, idleMs, starters, slots, clock, log } = deps;
  /** The label of each container. */
  const owned = new Set<string>();
  /** The request of each container in use. */
  const lent = new Map<Sandbox, SandboxRequest>();
  const tasks = createBackgroundTasks(log, deps.checkEngine);
  const remove = (sandbox: Sandbox): Promise<void> => tasks.start(() => sandbox.close());
  const ready = createReadyList({
    open: start,
    perKind: least,
    most,
    starters,
    idleMs,
    graceMs: closeGraceMs,
    mayOpen: deps.isEngineWell,
    discard: (sandbox) => void remove(sandbox),
    failed({ jobType }, error, restMs) {
      log.warn("no container kept ready for {jobType}, next in {seconds} s: {reason}", {
        jobType,
        seconds: (restMs / 1000).toFixed(1),
        reason: describeError(error),
      });
      if (error instanceof EngineError && error.transient) deps.checkEngine();
    },
    changed: deps.changed,
    clock,
  });

  /** Requests of jobs that run: sessions use no slot. */
  const jobs = () => [...lent.values()].filter(({ isSession }) => !isSession);

  async function start({ jobType, spec }: SandboxRequest, signal: AbortSignal): Promise<Sandbox> {
    const leaseId = `pool-${randomUUID()}`;
    const forget = (): void => void owned.delete(leaseId);
    owned.add(leaseId);
    try {
      const sandbox = await deps.start({ ...spec, labels: { ...spec.labels, leaseId } }, signal);
      for (const [module, reason] of Object.entries(sandbox.preloadErrors)) {
        log.warn("preload of {module} for {jobType} failed: {reason}", { module, jobType, reason });
      }
      return { ...sandbox, close: () => sandbox.close().finally(forget) };
    } catch (error) {
      forget();
      throw error;
    }
  }

  return {
    async acquire(request, signal) {
      const sandbox = await ready.take(request, signal);
      lent.set(sandbox, request);
      return sandbox;
    },
    async giveBack(sandbox) {
      if (!lent.delete(sandbox)) return;
      const done = remove(sandbox);
      ready.fill();
      if (tasks.count() > slots) await done;
    },
    discard(sandbox) {
      if (lent.delete(sandbox)) void remove(sandbox);
    },
    keepReadyFor: ready.keepReadyFor,
    mountsFiles: () => false,
    stats: () => countByKind(ready.kinds(), jobs()),
    owns: (label) => owned.has(label),
    async close() {
      await ready.close();
      await tasks.whenIdle();
    },
  };
}

function countByKind(waiting: readonly KindCount[], lent: readonly SandboxRequest[]): PoolKind[] {
  const kinds = new Map<string, PoolKind>();
  for (const { request, ready, starting } of waiting) {
    const kind = poolKindOf(kinds, request, "engine");
    kind.ready += ready;
    kind.starting += starting;
  }
  for (const request of lent) poolKindOf(kinds, request, "engine").in_use += 1;
  return [...kinds.values()];
}

/**
 * The supervisor's bytecode by image, compiled by the image's own Python in its first container.
 * Bytecode from a hostile image runs only in containers of that image.
 */
export function bytecodes(limit = 64) {
  const byImage = new Map<string, Bytecode>();
  return {
    of: (image: string): Bytecode | null => byImage.get(image) ?? null,
    /** Null drops an image's, so that the next container compiles it again. */
    keep(image: string, bytecode: Bytecode | null): void {
      if (bytecode === null) return void byImage.delete(image);
      const { program, later } = bytecode;
      const own = { program: Uint8Array.from(program), later: Uint8Array.from(later) };
      putLast(byImage, image, own, limit);
    },
  };
}

/** Timeout of an engine call that the caller cannot abort, in ms. */
const callMs = 30_000;
/** How long the engine may take to report how a container ended, in ms. */
const autopsyMs = 5000;
/**
 * How long a supervisor may take to end by itself, in ms: killing it would cost the engine one more
 * process.
 */
const partingMs = 5000;

const programs = bytecodes();

/**
 * Starts a container and waits until its supervisor is ready for a job.
 *
 * @throws EngineError; the signal's reason on abort. No container is left behind in either case.
 */
export async function openSandbox(
  engine: Engine,
  spec: SandboxSpec,
  signal: AbortSignal,
): Promise<Sandbox> {
  signal.throwIfAborted();
  const beganAtMs = performance.now();
  // The caller's signal does not abort this call: the engine would still create the container, and
  // nobody would know its id.
  const profile = containerProfile(spec);
  const containerId = await bounded((limit) => engine.create(profile, limit));
  const remove = (): Promise<void> => bounded((limit) => engine.remove(containerId, limit));

  try {
    const stream = await engine.attach(containerId, signal);
    const link = linkOf(stream);
    const known = programs.of(spec.image);
    link.input.write(supervisorProgram(spec.preload, known));
    await engine.start(containerId, signal);
    const conversation = await openConversation(link, signal).catch(async (error: unknown) => {
      programs.keep(spec.image, null);
      throw error instanceof EngineError ? await explained(engine, containerId, error) : error;
    });
    if (conversation.bytecode !== null) programs.keep(spec.image, conversation.bytecode);
    let later = known?.later;
    function bringModules(): void {
      if (later) link.input.write(encodeFrame("B", later));
      later = undefined;
    }
    let closed: Promise<void> | null = null;
    function close(): Promise<void> {
      closed ??= end().catch((error: unknown) => {
        closed = null;
        throw error;
      });
      return closed;
    }
    async function end(): Promise<void> {
      link.destroy();
      await engine.wait(containerId, AbortSignal.timeout(partingMs)).catch(() => {});
      await remove();
    }
    return {
      backend: "engine",
      containerId,
      pythonVersion: conversation.pythonVersion,
      preloadErrors: conversation.preloadErrors,
      startupMs: performance.now() - beganAtMs,
      died: conversation.died,
      async install(packages, limit) {
        await conversation.install(packages, limit).catch(async (error: unknown) => {
          if (!(error instanceof EngineError)) throw error;
          // Under gVisor a process that runs out of memory ends its container.
          const found = await autopsy(engine, containerId);
          throw found?.outOfMemory ? new InstallError(noMemory, { cause: error }) : error;
        });
      },
      giveFiles: (files, limit) => conversation.giveFiles(files, limit),
      beginSession(env) {
        bringModules();
        conversation.beginSession(env);
      },
      whyDied: () => autopsy(engine, containerId),
      async run(job, options) {
        if (job.results) bringModules();
        const report = await conversation.run(job, options);
        return isCutShort(report) ? autopsied(engine, containerId, report) : report;
      },
      close,
    };
  } catch (error) {
    // The first error is reported; if the removal fails too, the reaper removes the container
    // later.
    await remove().catch(() => {});
    throw error;
  }
}

/** Makes an engine call with a timeout that does not depend on the caller. */
async function bounded<T>(request: (limit: AbortSignal) => Promise<T>): Promise<T> {
  const limit = AbortSignal.timeout(callMs);
  try {
    return await request(limit);
  } catch (cause) {
    if (!limit.aborted) throw cause;
    const message = `the engine did not answer within ${callMs / 1000} s`;
    throw new EngineError("unavailable", message, { cause });
  }
}

/** Adds to a lost run how the engine says its container ended. */
async function autopsied(engine: Engine, id: string, report: RunReport): Promise<RunReport> {
  const found = await autopsy(engine, id);
  if (found === null) return report;
  const lostReason = `${report.lostReason} (the container's exit code is ${found.exitCode})`;
  return { ...report, outOfMemory: found.outOfMemory, lostReason };
}

/** Adds to a failed start how the engine says its container ended. */
async function explained(engine: Engine, id: string, error: EngineError): Promise<EngineError> {
  const found = await autopsy(engine, id);
  if (found === null) return error;
  const memory = found.outOfMemory ? ", out of memory" : "";
  const message = `${error.message} (the container's exit code is ${found.exitCode}${memory})`;
  return new EngineError(error.code, message, { cause: error, transient: error.transient });
}

/** How the engine says a container ended; null if it does not say. */
async function autopsy(engine: Engine, id: string): Promise<ContainerState | null> {
  const signal = AbortSignal.timeout(autopsyMs);
  try {
    await engine.wait(id, signal);
    const state = await engine.inspect(id, signal);
    if (state.exitCode !== 137 || state.outOfMemory) return state;
    return { ...state, outOfMemory: await engine.tellsOutOfMemory(id, signal) };
  } catch {
    return null;
  }
}

/** Whose containers to reap: those of dead agents with this name. */
interface Owner {
  readonly agentName: string;
  /** The agent that runs the reaper. */
  readonly agentId: string;
  /** Whether this agent holds the lease, or keeps a container ready under that label. */
  readonly isHeld: (leaseId: string) => boolean;
  /** Null if this agent cannot see whether the other one is alive. */
  readonly isAlive: (agentId: string, place: string) => Promise<boolean | null>;
  readonly nowMs: () => number;
}

/** Longer than an agent takes to commit the ended container of a build. */
const ENDED_MS = 10 * 60_000;

/**
 * Returns a function that removes the containers left by dead agents and failed removals, and
 * returns their number.
 *
 * An agent of another host scope (host/alive.ts) may be alive. It is, if its container runs: when an
 * agent dies, the engine closes the container's input, and the container ends. Ended containers of such an
 * agent are kept for ten minutes.
 *
 * @throws (the returned function) EngineError; the signal's reason.
 */
export function createReaper(
  engine: Engine,
  owner: Owner,
): (signal: AbortSignal) => Promise<number> {
  /** When containers were first seen stopped. */
  let endedMs = new Map<string, number>();

  async function isInUse({ id, labels: its, isRunning }: ContainerEntry): Promise<boolean> {
    const agentId = its[labels.agentId] ?? "";
    const leaseId = its[labels.leaseId];
    if (agentId === owner.agentId) {
      // Images that builds make have a blank label, which their containers inherit.
      return leaseId ? owner.isHeld(leaseId) : isRunning;
    }
    const lives = await owner.isAlive(agentId, its[labels.hostScope] ?? "");
    if (lives !== null) return lives;
    return isRunning || owner.nowMs() - (endedMs.get(id) ?? owner.nowMs()) < ENDED_MS;
  }

  return async (signal) => {
    const containers = await engine.list(labels.agentName, owner.agentName, signal);
    const ended = containers.filter(({ isRunning }) => !isRunning);
    const nowMs = owner.nowMs();
    endedMs = new Map(ended.map(({ id }) => [id, endedMs.get(id) ?? nowMs]));
    let removed = 0;
    for (const container of containers) {
      if (!isOfAgent(container) || (await isInUse(container))) continue;
      await engine.remove(container.id, signal);
      removed += 1;
    }
    return removed;
  };
}

/** Checks the name too: a container of another program may inherit our labels from its image. */
function isOfAgent({ name, labels: its }: ContainerEntry): boolean {
  return name.startsWith(namePrefix(its[labels.agentId] ?? ""));
}
