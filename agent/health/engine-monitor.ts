import type { Logger } from "@logtape/logtape";
import type { CircuitBreaker, EngineHealth } from "../../shared/wire/health.ts";
import { describeError } from "../../shared/log-line.ts";
import {
  type BreakerEvent,
  closedBreaker,
  describeBreaker,
  nextBreaker,
  recoversInMs,
} from "./breaker.ts";
import type { ChangeSignal } from "../waiting/change-signal.ts";
import { type Clock, deadline } from "../waiting/clock.ts";
import type { EngineErrors } from "./count-errors.ts";

/** What the agent knows about its engine, and how many jobs it may therefore take. */
export type EngineMonitor = {
  readonly health: () => EngineHealth;
  readonly breaker: () => CircuitBreaker;
  /** How many of `free` slots may be offered while `held` leases run. */
  readonly slotsToOffer: (free: number, held: number) => number;
  /** The engine did what a job asked of it. */
  readonly recordSuccess: () => void;
  /** The engine failed a job; it is checked at once. */
  readonly recordFailure: () => void;
  /** Either the engine or the job failed: the engine is checked at once. */
  readonly checkSoon: () => void;
  /** Checks the engine now, for a run that was lost; false if it does not answer in time. */
  readonly checkNow: () => Promise<boolean>;
  /** Resolves after the first check. */
  readonly firstChecked: Promise<void>;
  /** Checks the engine every few seconds until `end`. */
  readonly run: (end: AbortSignal) => Promise<void>;
};

export type EngineMonitorDeps = {
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

export function createEngineMonitor(deps: EngineMonitorDeps): EngineMonitor {
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

  function slotsToOffer(free: number, held: number): number {
    if (!health.available || breaker.state === "open") return 0;
    return breaker.state === "closed" ? free : Math.min(free, held === 0 ? 1 : 0);
  }

  return {
    health: () => ({ ...health, errors: deps.errors() }),
    breaker: () => describeBreaker(breaker),
    slotsToOffer,
    recordSuccess: () => dispatch("success"),
    recordFailure: () => {
      dispatch("failure");
      checkSoon();
    },
    checkSoon,
    checkNow,
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
