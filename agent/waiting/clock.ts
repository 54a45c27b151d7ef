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
