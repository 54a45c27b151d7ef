import { randomUUID } from "node:crypto";
import type { Logger } from "@logtape/logtape";
import type { PoolKind } from "../shared/health.ts";
import { describeError } from "../shared/log-line.ts";
import type { Changes } from "./changes.ts";
import { type Clock, deadline } from "./clock.ts";
import { kindOf, type Order } from "./pool/order.ts";
import { refill } from "./pool/refill.ts";
import { newShelf, type Shelf, takeOff, takeStarting } from "./pool/shelf.ts";
import { rateAt, shareOut, type Size, wanted, withOrder } from "./pool/sizing.ts";
import { withSpare } from "./pool/spare.ts";
import type { Sandbox, SandboxSpec } from "./sandbox/types.ts";

/** Where a job gets its container from. */
export type Pool = {
  /**
   * A container that waits for its one job; whoever acquires it gives it back.
   *
   * @throws EngineError; the signal's reason.
   */
  readonly acquire: (order: Order, signal: AbortSignal) => Promise<Sandbox>;
  /** Resolves once the container is removed, or the engine could not do so in time. */
  readonly giveBack: (sandbox: Sandbox) => Promise<void>;
  /** Has containers ready for orders that may come. */
  readonly expect: (order: Order) => void;
  readonly stats: () => PoolKind[];
  /** Whether a container with this label is the pool's, and not being removed. */
  readonly owns: (label: string) => boolean;
  /** Removes the containers that wait, and starts no more ahead. */
  readonly close: () => Promise<void>;
};

export type StartSandbox = (spec: SandboxSpec, signal: AbortSignal) => Promise<Sandbox>;

export type PoolDeps = {
  readonly start: StartSandbox;
  readonly size: Size;
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

/** Starting two at a time is as fast as two cores go, and leaves room for the jobs. */
const STARTERS = 2;
/** A start ahead waits until the last job to come has most likely begun; */
const QUIET_MS = 30;
/** but where jobs come all the time, no longer than this. */
const PATIENCE_MS = 500;
const TICK_MS = 15_000;
/** What a start under way gets at the end: given up half way, the engine may keep the container. */
const CLOSE_GRACE_MS = 5000;
/** What the replacement of a container that died gets to start in. */
const SPARE_MS = 60_000;

/** Keeps single-use containers ready, so that a job does not wait for its container to start. */
export function createPool(deps: PoolDeps): Pool {
  const { size, idleMs, clock, changes, log } = deps;
  const shelves = new Map<string, Shelf>();
  const lent = new Map<Sandbox, Shelf>();
  /** What the pool's containers carry as their label, each its own. */
  const owned = new Set<string>();
  const removals = new Set<Promise<void>>();
  const end = new AbortController();
  const halt = new AbortController();
  let askedMs = 0;
  let closing: Promise<void> | undefined;

  async function acquire(order: Order, signal: AbortSignal): Promise<Sandbox> {
    const shelf = expected(order);
    askedMs = shelf.askedMs;
    shelf.rate = withOrder(shelf.rate, askedMs);
    clock.sleep(QUIET_MS, end.signal).then(changes.tell, () => {});
    const sandbox =
      takeReady(shelf) ?? (await takeStarting(shelf, signal)) ?? (await start(order, signal));
    lent.set(sandbox, shelf);
    shelf.inUse += 1;
    return sandbox;
  }

  function expected(order: Order): Shelf {
    const kind = kindOf(order);
    const shelf = shelves.get(kind) ?? newShelf(order);
    shelves.set(kind, shelf);
    shelf.askedMs = clock.nowMs();
    shelf.shortSinceMs ??= shelf.askedMs;
    return shelf;
  }

  function takeReady(shelf: Shelf): Sandbox | undefined {
    const sandbox = shelf.ready.shift()?.sandbox;
    return (
      sandbox &&
      withSpare(sandbox, async (signal) => {
        log.warn("a container died before its job came: a fresh one takes its place");
        using limit = deadline(clock, SPARE_MS);
        return await start(shelf.order, AbortSignal.any([signal, limit.signal]));
      })
    );
  }

  async function start({ spec }: Order, signal: AbortSignal): Promise<Sandbox> {
    const leaseId = `pool-${randomUUID()}`;
    const forget = (): void => void owned.delete(leaseId);
    owned.add(leaseId);
    try {
      const sandbox = await deps.start({ ...spec, labels: { ...spec.labels, leaseId } }, signal);
      return { ...sandbox, close: () => sandbox.close().finally(forget) };
    } catch (error) {
      forget();
      throw error;
    }
  }

  function put(shelf: Shelf, sandbox: Sandbox): void {
    const waiting = shelf.waiting.shift();
    if (waiting) return waiting(sandbox);
    const entry = { sandbox, sinceMs: clock.nowMs() };
    shelf.ready.push(entry);
    const drop = (): void => {
      if (!takeOff(shelf, entry)) return;
      shelf.shortSinceMs ??= clock.nowMs();
      remove(sandbox);
      changes.tell();
    };
    if (sandbox.died.aborted) drop();
    sandbox.died.addEventListener("abort", drop, { once: true });
    trim();
  }

  /** The kinds, the last asked for first, each with the number that is to be ready. */
  function shares(): { readonly shelf: Shelf; readonly share: number }[] {
    const nowMs = clock.nowMs();
    const line = [...shelves.values()].toSorted((a, b) => b.askedMs - a.askedMs);
    const wants = line.map(({ order, rate, startMs, askedMs: lastMs }) =>
      // Containers that hold a device must not lie in wait.
      order.spec.gpus > 0 || lastMs <= nowMs - idleMs
        ? 0
        : wanted(size, rateAt(rate, nowMs), startMs),
    );
    return shareOut(wants, size.most).map((share, n) => ({ shelf: line[n]!, share }));
  }

  function next(): Shelf | undefined {
    if (!deps.isEngineWell()) return undefined;
    const nowMs = clock.nowMs();
    const isQuiet = askedMs <= nowMs - QUIET_MS;
    return shares().find(({ shelf, share }) => {
      const { ready, starting, waiting, retryMs, shortSinceMs } = shelf;
      const young = ready.filter(({ sinceMs }) => sinceMs > nowMs - idleMs);
      if (young.length + starting - waiting.length >= share) shelf.shortSinceMs = null;
      else if (retryMs <= nowMs) return isQuiet || (shortSinceMs ?? nowMs) <= nowMs - PATIENCE_MS;
      return false;
    })?.shelf;
  }

  /** Removes what is more than the share of its kind, the oldest first, and forgets idle kinds. */
  function trim(): void {
    const beforeMs = clock.nowMs() - idleMs;
    for (const { shelf, share } of shares()) {
      const left = shelf.ready.splice(0, Math.max(0, shelf.ready.length - share));
      for (const { sandbox } of left) remove(sandbox);
      const isIdle = shelf.askedMs <= beforeMs && shelf.starting + shelf.inUse === 0;
      if (isIdle) shelves.delete(kindOf(shelf.order));
    }
  }

  async function tick(): Promise<void> {
    while (!end.signal.aborted) {
      await clock.sleep(Math.min(TICK_MS, idleMs / 4), end.signal).catch(() => {});
      trim();
      changes.tell();
    }
  }

  function remove(sandbox: Sandbox): Promise<void> {
    const removal = sandbox
      .close()
      .catch((error: unknown) => {
        log.warn("container not removed yet: {reason}", { reason: describeError(error) });
        deps.doubted();
      })
      .finally(() => removals.delete(removal));
    removals.add(removal);
    return removal;
  }

  function giveBack(sandbox: Sandbox): Promise<void> {
    const shelf = lent.get(sandbox);
    if (shelf) shelf.inUse -= 1;
    lent.delete(sandbox);
    return remove(sandbox);
  }

  async function shut(): Promise<void> {
    end.abort();
    changes.tell();
    using grace = deadline(clock, CLOSE_GRACE_MS);
    grace.signal.addEventListener("abort", () => halt.abort(grace.signal.reason));
    await Promise.all(work);
    for (const { ready } of shelves.values()) {
      for (const { sandbox } of ready.splice(0)) void remove(sandbox);
    }
    await Promise.all(removals);
  }

  const refillDeps = { ...deps, start, next, put };
  const signals = { end: end.signal, halt: halt.signal };
  const work = [tick(), ...Array.from({ length: STARTERS }, () => refill(refillDeps, signals))];

  return {
    acquire,
    giveBack,
    expect: (order) => {
      expected(order);
      changes.tell();
    },
    stats: () =>
      [...shelves.values()].map(({ order: { jobType, spec }, ready, starting, inUse }) => ({
        job_type: jobType,
        runtime: spec.runtime,
        ready: ready.length,
        starting,
        in_use: inUse,
      })),
    owns: (label) => owned.has(label),
    close: () => (closing ??= shut()),
  };
}
