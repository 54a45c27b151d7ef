import { setImmediate as nextTick } from "node:timers/promises";

const limitMs = 10;

/**
 * Keeps ticks of the event loop short. Reads of a local file are synchronous, so without a pause all
 * requests that arrived together would be served in one tick. The returned function makes a read in this tick if the
 * tick has taken less than `limitMs` and no earlier read waits, else in a later tick. Reads run in the order in which
 * they were asked for: a reader of many pieces waits behind all others for each piece.
 */
export function shortTicks(): <T>(read: () => T) => Promise<T> {
  let beganMs: number | undefined;
  const tickMs = (): number => {
    if (beganMs === undefined) {
      beganMs = performance.now();
      setImmediate(() => (beganMs = undefined));
    }
    return performance.now() - beganMs;
  };
  let waiting: (() => void)[] = [];
  const serve = async (): Promise<void> => {
    while (waiting.length > 0) {
      await nextTick();
      let served = 0;
      while (served < waiting.length && tickMs() <= limitMs) waiting[served++]!();
      waiting = waiting.slice(served);
    }
  };
  return async (read) => {
    if (waiting.length === 0 && tickMs() <= limitMs) return read();
    return new Promise((resolve, reject) => {
      const take = (): void => {
        try {
          resolve(read());
        } catch (error) {
          reject(error);
        }
      };
      if (waiting.push(take) === 1) void serve();
    });
  };
}
