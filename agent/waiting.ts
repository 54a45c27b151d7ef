/** The agent's clock. It starts at the machine's time and never jumps or goes back. */
export type Clock = {
  /** Milliseconds. */
  readonly nowMs: () => number;
  /** Waits; rejects once `signal` is aborted. */
  readonly sleep: (ms: number, signal: AbortSignal) => Promise<void>;
};

export const systemClock: Clock = {
  nowMs: () => performance.timeOrigin + performance.now(),
  // Not node:timers/promises: it creates an error with a stack for each aborted sleep, and every
  // job aborts one.
  sleep: (ms, signal) =>
    new Promise((resolve, reject) => {
      signal.throwIfAborted();
      const stop = (): void => {
        clearTimeout(timer);
        reject(signal.reason as Error);
      };
      const timer = setTimeout(() => {
        signal.removeEventListener("abort", stop);
        resolve();
      }, ms);
      signal.addEventListener("abort", stop, { once: true });
    }),
};

/**
 * An abort reason for signals whose reason nobody reads: the default reason records a stack each
 * time.
 */
export const OVER = new Error("over");

/** A signal that aborts after `ms`, unless it is disposed first. */
export function deadline(clock: Clock, ms: number): Disposable & { readonly signal: AbortSignal } {
  const expiry = new AbortController();
  const disposal = new AbortController();
  clock.sleep(ms, disposal.signal).then(
    () => expiry.abort(new DOMException(`not within ${ms} ms`, "TimeoutError")),
    () => {},
  );
  return { signal: expiry.signal, [Symbol.dispose]: () => disposal.abort(OVER) };
}

/** Notifies listeners that the agent's capacity or state has changed. */
export type ChangeSignal = {
  readonly notify: () => void;
  /** Listens until the result is disposed. */
  readonly subscribe: (listener: () => void) => Disposable;
  /** Waits until `holds` returns true; checks it after each change. */
  readonly waitUntil: (holds: () => boolean) => Promise<void>;
};

export function createChangeSignal(): ChangeSignal {
  const listeners = new Set<() => void>();

  const listen = (listener: () => void): Disposable => {
    listeners.add(listener);
    return { [Symbol.dispose]: () => listeners.delete(listener) };
  };

  async function until(holds: () => boolean): Promise<void> {
    while (!holds()) {
      const { promise, resolve } = Promise.withResolvers<void>();
      using _listening = listen(resolve);
      await promise;
    }
  }

  return {
    notify: () => listeners.forEach((listener) => listener()),
    subscribe: listen,
    waitUntil: until,
  };
}

/** Waits for `promise`; rejects with the signal's reason if `signal` aborts first. */
export async function abortable<T>(promise: Promise<T>, signal: AbortSignal): Promise<T> {
  const { promise: aborted, reject } = Promise.withResolvers<never>();
  const onAbort = (): void => reject(signal.reason as Error);
  if (signal.aborted) onAbort();
  signal.addEventListener("abort", onAbort, { once: true });
  try {
    return await Promise.race([promise, aborted]);
  } finally {
    signal.removeEventListener("abort", onAbort);
  }
}

/** Milliseconds to wait after the n-th failure in a row (from 1): doubled each time, jittered. */
export function backoffMs(failures: number, firstMs: number, capMs: number): number {
  const ms = Math.min(capMs, firstMs * 2 ** (failures - 1));
  return ms * (0.5 + Math.random() / 2);
}
