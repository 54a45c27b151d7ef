import type { BreakerState, CircuitBreaker } from "../../shared/wire/health.ts";

/** The circuit breaker around the engine: docs/contract.md 5.10 and 5.11. */
export type Breaker = {
  readonly state: BreakerState;
  /** Failures in a row while closed. */
  readonly failures: number;
  /** Successes in a row while half open. */
  readonly successes: number;
  readonly lastFailureMs: number | null;
  readonly openedMs: number;
};

/** `failure` and `success` concern the engine, never the code. `tick` only lets time pass. */
export type BreakerEvent = "failure" | "success" | "tick";

export const FAILURES_TO_OPEN = 5;
export const RECOVERY_MS = 30_000;
const SUCCESSES_TO_CLOSE = 2;

export const closedBreaker: Breaker = {
  state: "closed",
  failures: 0,
  successes: 0,
  lastFailureMs: null,
  openedMs: 0,
};

/** The breaker after `event` at `nowMs`, on a clock that never goes back. */
export function nextBreaker(before: Breaker, event: BreakerEvent, nowMs: number): Breaker {
  const now = recover(before, nowMs);
  if (event === "failure") return fail(now, nowMs);
  return event === "success" ? succeed(now) : now;
}

/** Milliseconds until an open breaker becomes half open; Infinity in the other states. */
export function recoversInMs(breaker: Breaker, nowMs: number): number {
  if (breaker.state !== "open") return Infinity;
  return Math.max(0, breaker.openedMs + RECOVERY_MS - nowMs);
}

function recover(breaker: Breaker, nowMs: number): Breaker {
  return recoversInMs(breaker, nowMs) > 0
    ? breaker
    : { ...breaker, state: "half_open", successes: 0 };
}

/**
 * A failure while the breaker is open comes from a job that started before; it must not delay the
 * recovery.
 */
function fail(breaker: Breaker, nowMs: number): Breaker {
  const failures = breaker.failures + 1;
  const failed = { ...breaker, failures, successes: 0, lastFailureMs: nowMs };
  const opens =
    breaker.state === "half_open" || (breaker.state === "closed" && failures >= FAILURES_TO_OPEN);
  return opens ? { ...failed, state: "open", openedMs: nowMs } : failed;
}

function succeed(breaker: Breaker): Breaker {
  if (breaker.state === "open") return breaker;
  if (breaker.state === "closed") return { ...breaker, failures: 0 };
  const successes = breaker.successes + 1;
  const closes = successes >= SUCCESSES_TO_CLOSE;
  return closes
    ? { ...breaker, state: "closed", failures: 0, successes: 0 }
    : { ...breaker, successes };
}

/** The breaker as /health shows it. */
export function describeBreaker(breaker: Breaker): CircuitBreaker {
  const { lastFailureMs } = breaker;
  return {
    state: breaker.state,
    failure_count: breaker.failures,
    success_count: breaker.successes,
    last_failure: lastFailureMs === null ? null : new Date(lastFailureMs).toISOString(),
  };
}
