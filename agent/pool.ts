import { randomUUID } from "node:crypto";
import type { Logger } from "@logtape/logtape";
import { describeError } from "../shared/log-line.ts";
import type { Changes } from "./changes.ts";
import { type Clock, deadline } from "./clock.ts";
import type { Sandbox, SandboxSpec } from "./sandbox/types.ts";

/** Where a job gets its container from. */
export type Pool = {
  /**
   * A container that waits for its one job; whoever acquires it closes it.
   *
   * @throws EngineError; the signal's reason.
   */
  readonly acquire: (spec: SandboxSpec, signal: AbortSignal) => Promise<Sandbox>;
  /** How many containers wait for a job. */
  readonly warm: () => number;
  /** Whether the pool started, or starts, a container under this label and has not closed it. */
  readonly owns: (label: string) => boolean;
  /** Removes the containers that wait, and starts no more. */
  readonly close: () => Promise<void>;
};

export type StartSandbox = (spec: SandboxSpec, signal: AbortSignal) => Promise<Sandbox>;

export type PoolDeps = {
  readonly start: StartSandbox;
  /** Containers kept ready for each kind of job that came lately. */
  readonly size: number;
  /** How long a kind is kept ready after its last job, and a container at the most. */
  readonly idleMs: number;
  /** Whether the engine is well enough to start what nobody has asked for yet. */
  readonly isEngineWell: () => boolean;
  readonly clock: Clock;
  /** Told when a container is ready or gone; tells when the engine's health changes. */
  readonly changes: Changes;
  readonly log: Logger;
};

/** Ready containers of one kind: equal in all that is fixed at creation but their labels. */
type Shelf = {
  readonly spec: SandboxSpec;
  readonly ready: { readonly sandbox: Sandbox; readonly sinceMs: number }[];
  starting: number;
  takenMs: number;
};

/** Starting two at a time is as fast as two cores go, and leaves room for the jobs. */
const STARTERS = 2;
/** A refill waits until the job that caused it has most likely begun. */
const REFILL_AFTER_MS = 30;
/** What a start under way gets at the end: given up half way, the engine may keep the container. */
const CLOSE_GRACE_MS = 5000;

/** Keeps single-use containers ready, so that a job does not wait for its container to start. */
export function createPool(deps: PoolDeps): Pool {
  const { start, size, idleMs, clock, changes, log } = deps;
  const shelves = new Map<string, Shelf>();
  /** In place of a lease's id, what containers that are started ahead carry as their label. */
  const owned = new Set<string>();
  const end = new AbortController();
  const halt = new AbortController();

  async function acquire(spec: SandboxSpec, signal: AbortSignal): Promise<Sandbox> {
    const shelf = shelfOf(spec);
    shelf.takenMs = clock.nowMs();
    clock.sleep(REFILL_AFTER_MS, end.signal).then(changes.tell, () => {});
    return shelf.ready.shift()?.sandbox ?? start(spec, signal);
  }

  /** Containers that hold a device must not lie in wait. */
  function shelfOf(spec: SandboxSpec): Shelf {
    const { labels: _, ...kind } = spec;
    const key = JSON.stringify(kind);
    const shelf = shelves.get(key) ?? { spec, ready: [], starting: 0, takenMs: 0 };
    if (spec.gpus === 0) shelves.set(key, shelf);
    return shelf;
  }

  function shelfToFill(): Shelf | undefined {
    if (!deps.isEngineWell()) return undefined;
    const dueMs = clock.nowMs() - REFILL_AFTER_MS;
    return [...shelves.values()].find(
      ({ ready, starting, takenMs }) => ready.length + starting < size && takenMs <= dueMs,
    );
  }

  async function fillShelves(): Promise<void> {
    for (;;) {
      await changes.until(() => end.signal.aborted || shelfToFill() !== undefined);
      const shelf = shelfToFill();
      if (end.signal.aborted || !shelf) return;
      shelf.starting += 1;
      try {
        put(shelf, await startAhead(shelf.spec));
      } catch (error) {
        if (end.signal.aborted) return;
        log.warn("no container kept ready: {reason}", { reason: describeError(error) });
        discard(shelf);
      } finally {
        shelf.starting -= 1;
      }
    }
  }

  async function startAhead(spec: SandboxSpec): Promise<Sandbox> {
    const label = `warm-${randomUUID()}`;
    const forget = (): void => void owned.delete(label);
    owned.add(label);
    try {
      const labels = { ...spec.labels, leaseId: label };
      const sandbox = await start({ ...spec, labels }, halt.signal);
      return { ...sandbox, close: () => sandbox.close().finally(forget) };
    } catch (error) {
      forget();
      throw error;
    }
  }

  function put(shelf: Shelf, sandbox: Sandbox): void {
    const entry = { sandbox, sinceMs: clock.nowMs() };
    shelf.ready.push(entry);
    const drop = (): void => {
      const at = shelf.ready.indexOf(entry);
      if (at < 0) return;
      shelf.ready.splice(at, 1);
      void remove(sandbox);
      changes.tell();
    };
    if (sandbox.died.aborted) drop();
    sandbox.died.addEventListener("abort", drop, { once: true });
  }

  /** Forgets a kind of container: the next job of that kind brings it back. */
  function discard(shelf: Shelf): void {
    for (const [key, known] of shelves) if (known === shelf) shelves.delete(key);
    for (const { sandbox } of shelf.ready.splice(0)) void remove(sandbox);
  }

  async function recycle(): Promise<void> {
    for (;;) {
      await clock.sleep(idleMs / 4, end.signal);
      const before = clock.nowMs() - idleMs;
      for (const shelf of shelves.values()) {
        if (shelf.takenMs <= before) discard(shelf);
        const old = shelf.ready.filter(({ sinceMs }) => sinceMs <= before);
        shelf.ready.splice(0, old.length);
        for (const { sandbox } of old) void remove(sandbox);
      }
      changes.tell();
    }
  }

  async function remove(sandbox: Sandbox): Promise<void> {
    await sandbox.close().catch((error: unknown) => {
      log.warn("container not removed yet: {reason}", { reason: describeError(error) });
    });
  }

  const work = [recycle().catch(() => {}), ...Array.from({ length: STARTERS }, fillShelves)];

  return {
    acquire,
    owns: (label) => owned.has(label),
    warm: () => [...shelves.values()].reduce((sum, { ready }) => sum + ready.length, 0),
    close: async () => {
      end.abort();
      changes.tell();
      using grace = deadline(clock, CLOSE_GRACE_MS);
      grace.signal.addEventListener("abort", () => halt.abort(grace.signal.reason));
      await Promise.all(work);
      const left = [...shelves.values()].flatMap(({ ready }) => ready.splice(0));
      await Promise.all(left.map(({ sandbox }) => remove(sandbox)));
    },
  };
}
