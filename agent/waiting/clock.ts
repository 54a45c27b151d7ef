/** The agent's time. It starts at the machine's clock and from then on never jumps or goes back. */
export type Clock = {
  /** Milliseconds. */
  readonly nowMs: () => number;
  /** Waits; rejects once `signal` is aborted. */
  readonly sleep: (ms: number, signal: AbortSignal) => Promise<void>;
};

export const systemClock: Clock = {
  nowMs: () => performance.timeOrigin + performance.now(),
  // That of node:timers/promises makes an error with a stack of each sleep that is cut short, as one of each job is.
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

/** To abort with where nobody asks why: the default reason records a stack each time. */
export const OVER = new Error("over");

/** A signal that aborts after `ms`, unless it is disposed of before. */
export function deadline(clock: Clock, ms: number): Disposable & { readonly signal: AbortSignal } {
  const expiry = new AbortController();
  const disposal = new AbortController();
  clock.sleep(ms, disposal.signal).then(
    () => expiry.abort(new DOMException(`not within ${ms} ms`, "TimeoutError")),
    () => {},
  );
  return { signal: expiry.signal, [Symbol.dispose]: () => disposal.abort(OVER) };
}
