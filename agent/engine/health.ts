import type { Logger } from "@logtape/logtape";
import { describeError } from "../../shared/log-line.ts";
import type { BreakerState, CircuitBreaker, EngineHealth } from "../../shared/wire/health.ts";
import { EngineError } from "../sandbox/sandbox.ts";
import { type ChangeSignal, type Clock, deadline } from "../waiting.ts";
import type { Engine } from "./engine.ts";

export type EngineMonitor = ReturnType<typeof createEngineMonitor>;

type EngineMonitorDeps = {
  /** Throws if the engine does not answer. */
  readonly ping: (signal: AbortSignal) => Promise<void>;
  /**
   * Asks for the engine's version and runtimes; throws if it does not answer. It costs more than
   * `ping`: Docker executes its runtimes.
   */
  readonly describe: (signal: AbortSignal) => Promise<EngineHealth>;
  /** Why the agent forks no jobs; null if it does. Throws if it takes no jobs for that reason. */
  readonly forkProblem: () => string | null;
  /** Removes containers that dead agents and failed removals left on the engine. */
  readonly sweep: (signal: AbortSignal) => Promise<void>;
  /** The failed calls of the engine so far. */
  readonly errors: () => EngineErrors;
  readonly clock: Clock;
  readonly changes: ChangeSignal;
  readonly log: Logger;
};

const PROBE_EVERY_MS = 5000;
const PING_TIMEOUT_MS = 5000;
const DESCRIBE_EVERY_MS = 60_000;
/** Podman starts a dozen programs before it answers, and goes on when nobody waits any more. */
const DESCRIBE_TIMEOUT_MS = 60_000;
/** A removal that failed unnoticed is repeated within this time. */
const SWEEP_EVERY_MS = 60_000;

/** What the agent knows about its engine, and how many jobs it may therefore take. */
export function createEngineMonitor(deps: EngineMonitorDeps) {
  const { clock, changes, log } = deps;
  const firstChecked = Promise.withResolvers<void>();
  let health: EngineHealth = { available: false, version: null, runtimes: [] };
  let describedMs = clock.nowMs();
  let breaker = closedBreaker;
  /**
   * Whether the engine stopped answering. Only then does an answer count as a success for the
   * breaker.
   */
  let wasSilent = false;
  let needsSweep = true;
  let sweptMs = clock.nowMs();
  let pause = new AbortController();

  function dispatch(event: BreakerEvent): void {
    const before = breaker.state;
    breaker = nextBreaker(breaker, event, clock.nowMs());
    if (breaker.state === before) return;
    log.warn("circuit breaker: {before} to {after}", { before, after: breaker.state });
    changes.notify();
  }

  /** Either the engine or the job failed: the engine is checked at once. */
  function checkSoon(): void {
    needsSweep = true;
    pause.abort();
  }

  async function check(end?: AbortSignal): Promise<boolean> {
    try {
      noteAnswer(await probe(end));
      return true;
    } catch (error) {
      if (!end?.aborted) noteSilence(error);
      return false;
    }
  }

  /** Pings the engine. Once a minute and after an outage it is also asked what it is. */
  async function probe(end?: AbortSignal): Promise<EngineHealth> {
    await inTime(deps.ping, PING_TIMEOUT_MS, end);
    let known = health;
    if (!health.available || clock.nowMs() - describedMs >= DESCRIBE_EVERY_MS) {
      known = await inTime(deps.describe, DESCRIBE_TIMEOUT_MS, end);
      describedMs = clock.nowMs();
    }
    return { ...known, fork_problem: deps.forkProblem() };
  }

  async function inTime<T>(
    ask: (signal: AbortSignal) => Promise<T>,
    ms: number,
    end?: AbortSignal,
  ): Promise<T> {
    using timeout = deadline(clock, ms);
    try {
      return await ask(end ? AbortSignal.any([timeout.signal, end]) : timeout.signal);
    } catch (error) {
      throw timeout.signal.aborted ? noAnswer(ms) : error;
    }
  }

  /** Checks the engine now, for a run that was lost; false if it does not answer in time. */
  async function checkNow(): Promise<boolean> {
    const isThere = await check();
    if (isThere) checkSoon();
    return isThere;
  }

  function noteAnswer(now: EngineHealth): void {
    const before = health;
    health = now;
    if (!before.available) {
      log.info("engine {version} answers, runtimes {runtimes}", { ...now });
      changes.notify();
    }
    dispatch(wasSilent ? "success" : "tick");
    if (breaker.state === "closed") wasSilent = false;
  }

  function noteSilence(error: unknown): void {
    if (health.available || !wasSilent) {
      log.error("no jobs can run: {reason}{remedy}", {
        reason: describeError(error),
        remedy: remedyFor(error),
      });
    }
    health = { ...health, available: false };
    wasSilent = true;
    needsSweep = true;
    dispatch("failure");
    changes.notify();
  }

  async function sweep(end: AbortSignal): Promise<void> {
    try {
      needsSweep = false;
      sweptMs = clock.nowMs();
      await deps.sweep(end);
    } catch (error) {
      needsSweep = true;
      if (!end.aborted) {
        log.warn("could not remove left-over containers, trying again soon: {reason}", {
          reason: describeError(error),
        });
      }
    }
  }

  /** Checks the engine every few seconds until `end`. */
  async function run(end: AbortSignal): Promise<void> {
    while (!end.aborted) {
      pause = new AbortController();
      await check(end);
      firstChecked.resolve();
      const isDue = needsSweep || clock.nowMs() - sweptMs >= SWEEP_EVERY_MS;
      if (isDue && health.available) await sweep(end);
      const pauseMs = Math.min(PROBE_EVERY_MS, recoversInMs(breaker, clock.nowMs()));
      await clock.sleep(pauseMs, AbortSignal.any([end, pause.signal])).catch(() => {});
    }
  }

  /** How many of `free` slots may be offered while `held` leases run. */
  function slotsToOffer(free: number, held: number): number {
    if (!health.available || breaker.state === "open") return 0;
    return breaker.state === "closed" ? free : Math.min(free, held === 0 ? 1 : 0);
  }

  return {
    health: (): EngineHealth => ({ ...health, errors: deps.errors() }),
    breaker: () => describeBreaker(breaker),
    slotsToOffer,
    /** The engine did what a job asked of it. */
    recordSuccess: () => dispatch("success"),
    /** The engine failed a job; it is checked at once. */
    recordFailure: () => {
      dispatch("failure");
      checkSoon();
    },
    checkSoon,
    checkNow,
    /** Resolves after the first check. */
    firstChecked: firstChecked.promise,
    run,
  };
}

const noAnswer = (ms: number): Error =>
  new Error(
    `the container engine did not answer within ${ms / 1000} s; if the host is overloaded, lower max_workers, else restart the engine`,
  );

const startIt = "; start the engine, or name another with docker_host";

/** What an operator can do if nothing answers on the socket or the agent may not open it. */
const remedies: Readonly<Record<string, string>> = {
  EACCES:
    "; the agent's user has to be in the socket's group, or docker_host has to name another engine",
  ENOENT: startIt,
  ECONNREFUSED: startIt,
};

function remedyFor(error: unknown): string {
  const { cause } = error as { cause?: NodeJS.ErrnoException };
  return remedies[cause?.code ?? ""] ?? "";
}

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

/** The calls that check the engine. */
const probes: readonly string[] = ["ping", "describe"] satisfies (keyof Engine)[];

type EngineErrors = NonNullable<EngineHealth["errors"]>;

/**
 * Wraps the engine and counts its failed calls by call and kind. A call that the agent aborted is
 * not counted, except a check of the engine that timed out.
 */
export function countErrors(engine: Engine): { engine: Engine; errors: () => EngineErrors } {
  const counts = new Map<string, EngineErrors[number]>();

  function note(operation: string, kind: string): void {
    const key = `${operation} ${kind}`;
    counts.set(key, { operation, kind, count: (counts.get(key)?.count ?? 0) + 1 });
  }

  function failed(operation: string, error: unknown): void {
    if (error instanceof EngineError) note(operation, error.code);
    else if (probes.includes(operation) && isTimeout(error)) note(operation, "timeout");
  }

  type AnyCall = (...args: unknown[]) => Promise<unknown>;
  const counted = Object.entries(engine as unknown as Record<string, AnyCall>).map(
    ([operation, call]): [string, AnyCall] => [
      operation,
      async (...args) => {
        try {
          return await call(...args);
        } catch (error) {
          failed(operation, error);
          throw error;
        }
      },
    ],
  );
  return {
    engine: Object.fromEntries(counted) as unknown as Engine,
    errors: () => [...counts.values()],
  };
}

function isTimeout(error: unknown): boolean {
  return error instanceof DOMException && error.name === "TimeoutError";
}
