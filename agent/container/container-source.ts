import { randomUUID } from "node:crypto";
import type { Logger } from "@logtape/logtape";
import type { PoolKind } from "../../shared/wire/health.ts";
import { describeError } from "../../shared/log-line.ts";
import { createBackgroundTasks } from "../ready/background-tasks.ts";
import { poolKindOf } from "../ready/pool-kind.ts";
import { createReadyList, type KindCount } from "../ready/ready-list.ts";
import { EngineError } from "../sandbox/errors.ts";
import type { Sandbox } from "../sandbox/sandbox.ts";
import type { SandboxRequest } from "../sandbox/sandbox-request.ts";
import type { SandboxSource } from "../sandbox/sandbox-source.ts";
import type { SandboxSpec } from "../sandbox/spec.ts";
import type { Clock } from "../waiting/clock.ts";

export type StartSandbox = (spec: SandboxSpec, signal: AbortSignal) => Promise<Sandbox>;

export interface ContainerSourceDeps {
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
