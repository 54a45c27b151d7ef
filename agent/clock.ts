import { setTimeout } from "node:timers/promises";

/** The agent's time. It starts at the machine's clock and from then on never jumps or goes back. */
export type Clock = {
  /** Milliseconds. */
  nowMs(): number;
  /** Waits; rejects once `signal` is aborted. */
  sleep(ms: number, signal: AbortSignal): Promise<void>;
};

export const systemClock: Clock = {
  nowMs: () => performance.timeOrigin + performance.now(),
  sleep: (ms, signal) => setTimeout(ms, undefined, { signal }),
};
