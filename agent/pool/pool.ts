import { randomUUID } from "node:crypto";
import type { Logger } from "@logtape/logtape";
import type { PoolKind } from "../../shared/wire/health.ts";
import type { Changes } from "../waiting/changes.ts";
import { type Clock, deadline } from "../waiting/clock.ts";
import { createChores } from "./chores.ts";
import type { Order } from "./order.ts";
import { refill } from "./refill.ts";
import { type Shelf, shelve, takeOut, takeReturning, takeStarting, takeUsed } from "./shelf.ts";
import { type Size, withOrder } from "./sizing.ts";
import { withSpare } from "./spare.ts";
import { createStock, QUIET_MS } from "./stock.ts";
import type { Sandbox, SandboxSpec } from "../sandbox/types.ts";

/** Where a job gets its container from. */
export type Pool = {
  /**
   * A container that waits for a job of this API key; whoever acquires it gives it back.
   *
   * @throws EngineError; the signal's reason.
   */
  readonly acquire: (order: Order, keyId: string | null, signal: AbortSignal) => Promise<Sandbox>;
  /**
   * Takes a container back after its job, and removes it in the background, or keeps it for the next
   * job of its key. Resolves at once, but where more removals wait than there are slots; safe to call twice.
   */
  readonly giveBack: (sandbox: Sandbox) => Promise<void>;
  /** Removes an acquired container, whatever it does. */
  readonly discard: (sandbox: Sandbox) => void;
  /** Has containers ready for orders that may come. */
  readonly expect: (order: Order) => void;
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
  readonly doubted: () => void;
  readonly clock: Clock;
  /** Told when a container is ready or gone; tells when the engine's health changes. */
  readonly changes: Changes;
  readonly log: Logger;
};

/** A container in use, and for whom. */
type Loan = { readonly shelf: Shelf; readonly keyId: string | null };

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
  const chores = createChores(log, deps.doubted);
  const remove = (sandbox: Sandbox): Promise<void> => chores.begin(() => sandbox.close());
  const stock = createStock({ size, idleMs, clock, remove: (sandbox) => void remove(sandbox) });
  const end = new AbortController();
  const halt = new AbortController();
  let closing: Promise<void> | undefined;

  async function acquire(
    order: Order,
    keyId: string | null,
    signal: AbortSignal,
  ): Promise<Sandbox> {
    const shelf = stock.receive(order);
    clock.sleep(QUIET_MS, end.signal).then(changes.tell, () => {});
    const used = takeUsed(shelf, keyId)?.sandbox ?? (await takeReturning(shelf, keyId));
    if (used && signal.aborted) void remove(used);
    signal.throwIfAborted();
    const sandbox = used ?? (await takeUnused(shelf, order, signal));
    lent.set(sandbox, { shelf, keyId });
    shelf.inUse += 1;
    return sandbox;
  }

  async function takeUnused(shelf: Shelf, order: Order, signal: AbortSignal): Promise<Sandbox> {
    shelf.rate = withOrder(shelf.rate, shelf.askedMs);
    const ready = shelf.ready.shift()?.sandbox ?? (await takeStarting(shelf, signal));
    return ready ?? start(order, signal);
  }

  async function start({ jobType, spec }: Order, signal: AbortSignal): Promise<Sandbox> {
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

  function put(shelf: Shelf, fresh: Sandbox): void {
    const waiting = shelf.waiting.shift();
    if (waiting) return waiting(fresh);
    const sandbox = spared(shelf, fresh);
    shelve(shelf.ready, { sandbox, sinceMs: clock.nowMs() }, () => {
      void remove(sandbox);
      changes.tell();
    });
    stock.trim();
  }

  /** As it may die between the last look at it and its use. */
  function spared(shelf: Shelf, sandbox: Sandbox): Sandbox {
    const sparing = withSpare(sandbox, async (signal) => {
      log.warn("a container died before its job came: a fresh one takes its place");
      using limit = deadline(clock, SPARE_MS);
      return await start(shelf.order, AbortSignal.any([signal, limit.signal]));
    });
    withSpares.add(sparing);
    return sparing;
  }

  /** What is known of a container in use, which it is no more. */
  function settle(sandbox: Sandbox): Loan | undefined {
    const loan = lent.get(sandbox);
    if (loan && lent.delete(sandbox)) loan.shelf.inUse -= 1;
    return loan;
  }

  async function giveBack(sandbox: Sandbox): Promise<void> {
    const loan = settle(sandbox);
    if (!loan) return;
    const isSpent = loan.shelf.order.spec.reuse === 1 || end.signal.aborted;
    const done = isSpent ? remove(sandbox) : chores.begin(() => reclaim(sandbox, loan));
    if (chores.count() > size.slots) await done;
  }

  /** Gets a container ready for the next job of its key, or removes it. */
  async function reclaim(sandbox: Sandbox, { shelf, keyId }: Loan): Promise<void> {
    let isTaken = false;
    const back = { keyId, sandbox: rearmed(shelf, sandbox) };
    shelf.returning.push(back);
    const kept = await back.sandbox.finally(() => (isTaken = !takeOut(shelf.returning, back)));
    if (kept === null) return sandbox.close();
    if (isTaken) return;
    if (end.signal.aborted) return kept.close();
    shelve(shelf.used, { sandbox: kept, sinceMs: clock.nowMs(), keyId }, () => void remove(kept));
    stock.trim();
  }

  async function rearmed(shelf: Shelf, sandbox: Sandbox): Promise<Sandbox | null> {
    if (!(await sandbox.rearm())) {
      // It is removed already; the pool has its label to forget.
      await sandbox.close();
      return null;
    }
    return withSpares.has(sandbox) ? sandbox : spared(shelf, sandbox);
  }

  async function tick(): Promise<void> {
    while (!end.signal.aborted) {
      await clock.sleep(Math.min(TICK_MS, idleMs / 4), end.signal).catch(() => {});
      stock.trim();
      changes.tell();
    }
  }

  async function shut(): Promise<void> {
    end.abort();
    changes.tell();
    using grace = deadline(clock, CLOSE_GRACE_MS);
    grace.signal.addEventListener("abort", () => halt.abort(grace.signal.reason));
    await Promise.all(work);
    for (const { ready, used } of stock.all()) {
      for (const { sandbox } of [...ready.splice(0), ...used.splice(0)]) void remove(sandbox);
    }
  }

  const next = (): Shelf | undefined => (deps.isEngineWell() ? stock.next() : undefined);
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
      if (settle(sandbox)) void remove(sandbox);
    },
    expect: (order) => {
      stock.expect(order);
      changes.tell();
    },
    stats: () =>
      stock.all().map(({ order: { jobType, spec }, ready, used, starting, inUse }) => ({
        job_type: jobType,
        runtime: spec.runtime,
        ready: ready.length + used.length,
        starting,
        in_use: inUse,
      })),
    owns: (label) => owned.has(label),
    close: async () => {
      await (closing ??= shut());
      await chores.done();
    },
  };
}
