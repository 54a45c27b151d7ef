import { randomUUID } from "node:crypto";
import type { Logger } from "@logtape/logtape";
import type { ChangeSignal } from "../../waiting/change-signal.ts";
import { type Clock, deadline } from "../../waiting/clock.ts";
import { createBackgroundTasks } from "./background-tasks.ts";
import type { SandboxRequest } from "../../sandbox/sandbox-request.ts";
import { refill } from "./refill.ts";
import type { SandboxSource } from "../../sandbox/sandbox-source.ts";
import { type Kind, addUntilDead, takeStarting } from "./kind.ts";
import { type Size, addRequest } from "./sizing.ts";
import { withSpare } from "./spare.ts";
import { createKinds, QUIET_MS } from "./kinds.ts";
import type { Sandbox } from "../../sandbox/sandbox.ts";
import type { SandboxSpec } from "../../sandbox/spec.ts";

export type StartSandbox = (spec: SandboxSpec, signal: AbortSignal) => Promise<Sandbox>;

export type PoolDeps = {
  readonly start: StartSandbox;
  readonly size: Size;
  /** How many starts ahead may run at once. */
  readonly starters: number;
  /** How long a kind is kept ready after its last job, and the longest that a container waits. */
  readonly idleMs: number;
  /** Whether the engine is well enough for starts ahead. */
  readonly isEngineWell: () => boolean;
  /**
   * Called when the engine failed a start or removal that no job waits for, so that it is checked.
   */
  readonly checkEngine: () => void;
  readonly clock: Clock;
  /**
   * Notified when a container is ready or gone; notifies the pool when the engine's health changes.
   */
  readonly changes: ChangeSignal;
  readonly log: Logger;
};

const TICK_MS = 15_000;
/**
 * How long starts in progress may take after `close`: the engine may keep the container of an
 * aborted start.
 */
const CLOSE_GRACE_MS = 5000;
/** How long the replacement of a dead container may take to start. */
const SPARE_MS = 60_000;

/** Keeps containers ready, so that a job does not wait for its container to start. */
export function createPool(deps: PoolDeps): SandboxSource {
  const { size, idleMs, clock, changes, log } = deps;
  /** The label of each container of the pool. */
  const owned = new Set<string>();
  /** The kind of each container in use. */
  const lent = new Map<Sandbox, Kind>();
  const tasks = createBackgroundTasks(log, deps.checkEngine);
  const remove = (sandbox: Sandbox): Promise<void> => tasks.start(() => sandbox.close());
  const kinds = createKinds({ size, idleMs, clock, remove: (sandbox) => void remove(sandbox) });
  const end = new AbortController();
  const halt = new AbortController();
  let closing: Promise<void> | undefined;

  async function acquire(request: SandboxRequest, signal: AbortSignal): Promise<Sandbox> {
    const kind = kinds.noteRequested(request);
    clock.sleep(QUIET_MS, end.signal).then(changes.notify, () => {});
    kind.rate = addRequest(kind.rate, kind.askedMs);
    const ready = kind.ready.shift()?.sandbox ?? (await takeStarting(kind, signal));
    const sandbox = ready ?? (await start(request, signal));
    lent.set(sandbox, kind);
    kind.inUse += 1;
    return sandbox;
  }

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

  function put(kind: Kind, fresh: Sandbox): void {
    const waiting = kind.waiting.shift();
    if (waiting) return waiting(fresh);
    const sandbox = replaceIfDead(kind, fresh);
    addUntilDead(kind, { sandbox, sinceMs: clock.nowMs() }, () => {
      void remove(sandbox);
      changes.notify();
    });
    kinds.trim();
  }

  /** A container may die between the last check and its use; then a fresh one replaces it. */
  function replaceIfDead(kind: Kind, sandbox: Sandbox): Sandbox {
    return withSpare(sandbox, async (signal) => {
      log.warn("a container died before its job came: a fresh one takes its place");
      using limit = deadline(clock, SPARE_MS);
      return await start(kind.request, AbortSignal.any([signal, limit.signal]));
    });
  }

  /** False if the container is not on loan. */
  function endLoan(sandbox: Sandbox): boolean {
    const kind = lent.get(sandbox);
    if (kind) kind.inUse -= 1;
    return lent.delete(sandbox);
  }

  async function giveBack(sandbox: Sandbox): Promise<void> {
    if (!endLoan(sandbox)) return;
    const done = remove(sandbox);
    if (tasks.count() > size.slots) await done;
  }

  async function tick(): Promise<void> {
    while (!end.signal.aborted) {
      await clock.sleep(Math.min(TICK_MS, idleMs / 4), end.signal).catch(() => {});
      kinds.trim();
      changes.notify();
    }
  }

  async function shut(): Promise<void> {
    end.abort();
    changes.notify();
    using grace = deadline(clock, CLOSE_GRACE_MS);
    grace.signal.addEventListener("abort", () => halt.abort(grace.signal.reason));
    await Promise.all(work);
    for (const { ready } of kinds.all()) {
      for (const { sandbox } of ready.splice(0)) void remove(sandbox);
    }
  }

  const next = (): Kind | undefined => (deps.isEngineWell() ? kinds.nextToFill() : undefined);
  const signals = { end: end.signal, halt: halt.signal };
  const refillDeps = { ...deps, start, next, put };
  const work = [
    tick(),
    ...Array.from({ length: deps.starters }, () => refill(refillDeps, signals)),
  ];

  return {
    acquire,
    giveBack,
    discard: (sandbox) => {
      if (endLoan(sandbox)) void remove(sandbox);
    },
    keepReadyFor: (request) => {
      kinds.noteExpected(request);
      changes.notify();
    },
    mountsFiles: () => false,
    stats: () =>
      kinds.all().map(({ request: { jobType, spec }, ready, starting, inUse }) => ({
        job_type: jobType,
        backend: "engine",
        runtime: spec.runtime,
        ready: ready.length,
        starting,
        in_use: inUse,
      })),
    owns: (label) => owned.has(label),
    close: async () => {
      await (closing ??= shut());
      await tasks.whenIdle();
    },
  };
}
