import { setImmediate as nextTurn } from "node:timers/promises";

/**
 * Keeps turns of the event loop short. Reads of a local file are synchronous, so without a pause all
 * requests that arrived together would be served in one turn. Resolves in this turn if it has taken
 * less than `limitMs`, else in a later one.
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
