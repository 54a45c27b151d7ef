import { randomUUID } from "node:crypto";
import type { Logger } from "@logtape/logtape";
import type { PoolKind } from "../../shared/wire/health.ts";
import { abortable } from "../waiting/abortable.ts";
import type { ChangeSignal } from "../waiting/change-signal.ts";
import { type Clock, deadline } from "../waiting/clock.ts";
import { createBackgroundTasks } from "./background-tasks.ts";
import type { ContainerRequest } from "./container-request.ts";
import { refill } from "./refill.ts";
import {
  type Kind,
  addUntilDead,
  removeEntry,
  takeRearming,
  takeStarting,
  takeUsed,
} from "./kind.ts";
import { type Size, addRequest } from "./sizing.ts";
import { withSpare } from "./spare.ts";
import { createKinds, QUIET_MS } from "./kinds.ts";
import type { Sandbox, SandboxSpec } from "../sandbox/types.ts";

/** Where a job gets its container from. */
export type Pool = {
  /**
   * A container that waits for a job of this API key; whoever acquires it gives it back.
   *
   * @throws EngineError; the signal's reason.
   */
  readonly acquire: (
    request: ContainerRequest,
    keyId: string | null,
    signal: AbortSignal,
  ) => Promise<Sandbox>;
  /**
   * Takes a container back after its job, and removes it in the background, or keeps it for the next
   * job of its key. Resolves at once, but where more removals wait than there are slots; safe to call twice.
   */
  readonly giveBack: (sandbox: Sandbox) => Promise<void>;
  /** Removes an acquired container, whatever it does. */
  readonly discard: (sandbox: Sandbox) => void;
  /** Has containers ready for requests that may come. */
  readonly expect: (request: ContainerRequest) => void;
  readonly stats: () => PoolKind[];
  /** Whether a container with this label is the pool's, and not being removed. */
  readonly owns: (label: string) => boolean;
  /** Removes the containers that wait, and starts no more ahead; resolves when no removal is under way. */
  readonly close: () => Promise<void>;
};

export type StartSandbox = (spec: SandboxSpec, signal: AbortSignal) => Promise<Sandbox>;

export type PoolDeps = {
  readonly start: StartSandbox;
  readonly size: Size;
  /** Starts ahead at a time. */
  readonly starters: number;
  /** How long a kind is kept ready after its last job, and a container at the most. */
  readonly idleMs: number;
  /** Whether the engine is well enough to start what nobody has asked for yet. */
  readonly isEngineWell: () => boolean;
  /** The engine failed what no job waits for: it should be asked whether it is well. */
  readonly checkEngine: () => void;
  readonly clock: Clock;
  /** Told when a container is ready or gone; tells when the engine's health changes. */
  readonly changes: ChangeSignal;
  readonly log: Logger;
};

/** A container in use, and for whom. */
type Loan = { readonly kind: Kind; readonly keyId: string | null };

const TICK_MS = 15_000;
/** What a start under way gets at the end: given up half way, the engine may keep the container. */
const CLOSE_GRACE_MS = 5000;
/** What the replacement of a container that died gets to start in. */
const SPARE_MS = 60_000;

/** Keeps containers ready, so that a job does not wait for its container to start. */
export function createPool(deps: PoolDeps): Pool {
  const { size, idleMs, clock, changes, log } = deps;
  /** What the pool's containers carry as their label, each its own. */
  const owned = new Set<string>();
  const lent = new Map<Sandbox, Loan>();
  const withSpares = new WeakSet<Sandbox>();
  const tasks = createBackgroundTasks(log, deps.checkEngine);
  const remove = (sandbox: Sandbox): Promise<void> => tasks.start(() => sandbox.close());
  const kinds = createKinds({ size, idleMs, clock, remove: (sandbox) => void remove(sandbox) });
  const end = new AbortController();
  const halt = new AbortController();
  let closing: Promise<void> | undefined;

  async function acquire(
    request: ContainerRequest,
    keyId: string | null,
    signal: AbortSignal,
  ): Promise<Sandbox> {
    const kind = kinds.noteRequested(request);
    clock.sleep(QUIET_MS, end.signal).then(changes.notify, () => {});
    const used = takeUsed(kind, keyId)?.sandbox ?? (await waitForRearm(kind, keyId, signal));
    const sandbox = used ?? (await takeUnused(kind, request, signal));
    lent.set(sandbox, { kind, keyId });
    kind.inUse += 1;
    return sandbox;
  }

  /** Waits for a container that has just served the key, and removes it where it comes too late. */
  async function waitForRearm(
    kind: Kind,
    keyId: string | null,
    signal: AbortSignal,
  ): Promise<Sandbox | null> {
    const rearming = takeRearming(kind, keyId);
    try {
      return await abortable(rearming, signal);
    } catch (error) {
      void rearming.then((late) => late && remove(late));
      throw error;
    }
  }

  async function takeUnused(
    kind: Kind,
    request: ContainerRequest,
    signal: AbortSignal,
  ): Promise<Sandbox> {
    kind.rate = addRequest(kind.rate, kind.askedMs);
    const ready = kind.ready.shift()?.sandbox ?? (await takeStarting(kind, signal));
    return ready ?? start(request, signal);
  }

  async function start({ jobType, spec }: ContainerRequest, signal: AbortSignal): Promise<Sandbox> {
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
    addUntilDead(kind.ready, { sandbox, sinceMs: clock.nowMs() }, () => {
      void remove(sandbox);
      changes.notify();
    });
    kinds.trim();
  }

  /** As it may die between the last look at it and its use. */
  function replaceIfDead(kind: Kind, sandbox: Sandbox): Sandbox {
    const sparing = withSpare(sandbox, async (signal) => {
      log.warn("a container died before its job came: a fresh one takes its place");
      using limit = deadline(clock, SPARE_MS);
      return await start(kind.request, AbortSignal.any([signal, limit.signal]));
    });
    withSpares.add(sparing);
    return sparing;
  }

  /** What is known of a container in use, which it is no more. */
  function endLoan(sandbox: Sandbox): Loan | undefined {
    const loan = lent.get(sandbox);
    if (loan && lent.delete(sandbox)) loan.kind.inUse -= 1;
    return loan;
  }

  async function giveBack(sandbox: Sandbox): Promise<void> {
    const loan = endLoan(sandbox);
    if (!loan) return;
    const isSpent = loan.kind.request.spec.reuse === 1 || end.signal.aborted;
    const done = isSpent ? remove(sandbox) : tasks.start(() => reclaim(sandbox, loan));
    if (tasks.count() > size.slots) await done;
  }

  /** Gets a container ready for the next job of its key, or removes it. */
  async function reclaim(sandbox: Sandbox, { kind, keyId }: Loan): Promise<void> {
    let isTaken = false;
    const back = { keyId, sandbox: rearm(kind, sandbox) };
    kind.rearming.push(back);
    const kept = await back.sandbox.finally(() => (isTaken = !removeEntry(kind.rearming, back)));
    // It is removed already; the pool has its label to forget.
    if (kept === null) return sandbox.close();
    if (isTaken) return;
    if (end.signal.aborted) return kept.close();
    addUntilDead(
      kind.used,
      { sandbox: kept, sinceMs: clock.nowMs(), keyId },
      () => void remove(kept),
    );
    kinds.trim();
  }

  async function rearm(kind: Kind, sandbox: Sandbox): Promise<Sandbox | null> {
    if (!(await sandbox.rearm())) return null;
    return withSpares.has(sandbox) ? sandbox : replaceIfDead(kind, sandbox);
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
    for (const { ready, used } of kinds.all()) {
      for (const { sandbox } of [...ready.splice(0), ...used.splice(0)]) void remove(sandbox);
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
    expect: (request) => {
      kinds.noteExpected(request);
      changes.notify();
    },
    stats: () =>
      kinds.all().map(({ request: { jobType, spec }, ready, used, starting, inUse }) => ({
        job_type: jobType,
        runtime: spec.runtime,
        ready: ready.length + used.length,
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
