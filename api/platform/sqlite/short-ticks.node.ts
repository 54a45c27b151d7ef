import { setImmediate as nextTick } from "node:timers/promises";

const limitMs = 10;

/**
 * Keeps ticks of the event loop short. Reads of a local file are synchronous, so without a pause all
 * requests that arrived together would be served in one tick. Resolves in this tick if it has taken
 * less than `limitMs`, else in a later one.
 */
export function shortTicks(): () => Promise<void> {
  let beganMs: number | undefined;
  const tickMs = (): number => {
    if (beganMs === undefined) {
      beganMs = performance.now();
      setImmediate(() => (beganMs = undefined));
    }
    return performance.now() - beganMs;
  };
  return async () => {
    while (tickMs() > limitMs) await nextTick();
  };
}
