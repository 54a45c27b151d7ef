const secondMs = 1000;
const minuteMs = 60 * secondMs;
const hourMs = 60 * minuteMs;

/** Pauses after failed calls: three days in all, then the delivery has failed. */
export const pausesMs = [
  5 * secondMs,
  30 * secondMs,
  2 * minuteMs,
  10 * minuteMs,
  30 * minuteMs,
  hourMs,
  2 * hourMs,
  4 * hourMs,
  8 * hourMs,
  12 * hourMs,
  20 * hourMs,
  24 * hourMs,
];

/** Longest pause that a receiver can ask for. */
const longestMs = 24 * hourMs;

/** A failed call. */
export interface Failure {
  /** Number of calls so far. */
  tries: number;
  status: number | null;
  /** The answer's header Retry-After. */
  retryAfter: string | null;
}

/**
 * When to call again (epoch ms), or undefined if there is no further try: after the last pause, or when
 * the receiver says that it is gone (410).
 *
 * @param random From 0 to 1. It spreads calls that failed at the same time over a fifth of the pause.
 */
export function nextTry(
  { tries, status, retryAfter }: Failure,
  now: number,
  random: number,
): number | undefined {
  const pauseMs = pausesMs[tries - 1];
  if (status === 410 || pauseMs === undefined) return undefined;
  const spreadMs = pauseMs * (0.9 + 0.2 * random);
  return Math.round(now + Math.max(spreadMs, Math.min(askedMs(retryAfter, now), longestMs)));
}

/** Retry-After is a number of seconds or a date. */
function askedMs(retryAfter: string | null, now: number): number {
  if (retryAfter === null) return 0;
  if (/^[0-9]{1,9}$/.test(retryAfter)) return Number(retryAfter) * secondMs;
  const at = /^[A-Z][a-z]+, /.test(retryAfter) ? Date.parse(retryAfter) : NaN;
  return Number.isNaN(at) ? 0 : at - now;
}
