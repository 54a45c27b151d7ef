import type { Clock } from "../waiting/clock.ts";

/** A clock that stands still until a test advances it. */
export type TestClock = Clock & {
  /** Lets time pass and wakes each sleeper at its time. */
  readonly advance: (ms: number) => void;
  /** Resolves with the time of a sleep once someone sleeps for a time between the two. */
  readonly sleeping: (ms: number, mostMs?: number) => Promise<number>;
};

type Sleeper = { readonly ms: number; readonly dueMs: number; readonly wake: () => void };

export function createTestClock(): TestClock {
  let nowMs = Date.UTC(2026, 10, 21);
  const sleepers = new Set<Sleeper>();
  const watchers = new Set<() => void>();

  function sleep(ms: number, signal: AbortSignal): Promise<void> {
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    if (signal.aborted) reject(signal.reason as Error);
    const sleeper = { ms, dueMs: nowMs + ms, wake: resolve };
    sleepers.add(sleeper);
    const onAbort = (): void => reject(signal.reason as Error);
    signal.addEventListener("abort", onAbort, { once: true });
    watchers.forEach((look) => look());
    return promise.finally(() => {
      sleepers.delete(sleeper);
      signal.removeEventListener("abort", onAbort);
    });
  }

  function advance(ms: number): void {
    nowMs += ms;
    for (const sleeper of sleepers) {
      if (sleeper.dueMs <= nowMs) sleeper.wake();
    }
  }

  async function sleeping(ms: number, mostMs = ms): Promise<number> {
    const { promise, resolve } = Promise.withResolvers<number>();
    const look = (): void => {
      const found = [...sleepers].find((sleeper) => sleeper.ms >= ms && sleeper.ms <= mostMs);
      if (found) resolve(found.ms);
    };
    watchers.add(look);
    look();
    return promise.finally(() => watchers.delete(look));
  }

  return { nowMs: () => nowMs, sleep, advance, sleeping };
}
