const FIRST_MS = 250;
const LONGEST_MS = 8_000;
const LONGEST_ASKED_MS = 60_000;

/**
 * How long to wait before the next try: what the service asked for, else twice as long each time.
 * Chance keeps clients that failed together from coming back together.
 *
 * @param tries How many tries have failed so far.
 */
export function pauseMs(tries: number, retryAfterS?: number, random = Math.random): number {
  if (retryAfterS !== undefined) {
    return Math.min(retryAfterS * 1000, LONGEST_ASKED_MS) + random() * FIRST_MS;
  }
  return Math.min(FIRST_MS * 2 ** (tries - 1), LONGEST_MS) * (0.5 + random() / 2);
}

/** Rejects with the signal's reason if that aborts first. */
export function sleep(ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const stop = () => {
      clearTimeout(timer);
      reject(signal?.reason as Error);
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", stop);
      resolve();
    }, ms);
    if (signal?.aborted) stop();
    else signal?.addEventListener("abort", stop, { once: true });
  });
}
