/** How many containers to keep ready. */
export type Size = {
  /** For each recently requested kind; 0 keeps none ready. */
  readonly least: number;
  /** For all kinds together. */
  readonly most: number;
  /** Executions at once, the largest burst that can arrive in one instant. */
  readonly slots: number;
};

/** Requests per second; recent ones count more. */
export type Rate = { readonly perS: number; readonly atMs: number };

export const noRequests: Rate = { perS: 0, atMs: 0 };

/** After this time the weight of a request has fallen to 1/e. */
const MEMORY_MS = 10_000;

export function rateAt({ perS, atMs }: Rate, nowMs: number): number {
  return perS * Math.exp((atMs - nowMs) / MEMORY_MS);
}

export function addRequest(rate: Rate, nowMs: number): Rate {
  return { perS: rateAt(rate, nowMs) + 1000 / MEMORY_MS, atMs: nowMs };
}

/** `least`, plus the number of requests that arrive while one container starts. */
export function countWanted({ least, slots }: Size, perS: number, startMs: number): number {
  if (least === 0) return 0;
  return least + Math.min(slots, Math.round((perS * startMs) / 1000));
}

/** Shares `most` containers among the kinds; earlier kinds are served first. */
export function shareOut(wants: readonly number[], most: number): number[] {
  let left = most;
  return wants.map((want) => {
    const share = Math.min(want, left);
    left -= share;
    return share;
  });
}
