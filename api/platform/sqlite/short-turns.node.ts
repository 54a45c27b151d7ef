import { setImmediate as nextTurn } from "node:timers/promises";

/**
 * Keeps turns of the event loop short where answers are there at once: without a wait for anything,
 * all requests that arrived together would be served in one turn. Resolves when this turn has taken
 * less than `limitMs` so far, or in one that has.
 */
export function shortTurns(limitMs = 10): () => Promise<void> {
  let beganMs: number | undefined;
  const turnMs = (): number => {
    if (beganMs === undefined) {
      beganMs = performance.now();
      setImmediate(() => (beganMs = undefined));
    }
    return performance.now() - beganMs;
  };
  return async () => {
    while (turnMs() > limitMs) await nextTurn();
  };
}
