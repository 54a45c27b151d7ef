/** How many containers of one kind to keep ready, and how many of all. */
export type Size = {
  /** Of each kind that came lately; 0 for none of any. */
  readonly least: number;
  /** Of all kinds together. */
  readonly most: number;
  /** Executions at once: no burst takes more in one instant. */
  readonly slots: number;
};

/** Requests per second, of which the recent ones count most. */
export type Rate = { readonly perS: number; readonly atMs: number };

export const noRequests: Rate = { perS: 0, atMs: 0 };

/** After this time a request counts for 1/e of what it counted for. */
const MEMORY_MS = 10_000;

export function rateAt({ perS, atMs }: Rate, nowMs: number): number {
  return perS * Math.exp((atMs - nowMs) / MEMORY_MS);
}

export function addRequest(rate: Rate, nowMs: number): Rate {
  return { perS: rateAt(rate, nowMs) + 1000 / MEMORY_MS, atMs: nowMs };
}

/** The least, and as many more as are ordered in the time that one takes to start. */
export function countWanted({ least, slots }: Size, perS: number, startMs: number): number {
  if (least === 0) return 0;
  return least + Math.min(slots, Math.round((perS * startMs) / 1000));
}

/** What each kind gets of the most there may be, the first in line first. */
export function shareOut(wants: readonly number[], most: number): number[] {
  let left = most;
  return wants.map((want) => {
    const share = Math.min(want, left);
    left -= share;
    return share;
  });
}
