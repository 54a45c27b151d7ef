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

/** What the agent knows of its engine, and how many jobs that lets it take. */
export type EngineWatch = {
  readonly health: () => EngineHealth;
  readonly breaker: () => CircuitBreaker;
  /** Of `free` slots those that may be offered while `held` leases run. */
  readonly slotsToOffer: (free: number, held: number) => number;
  /** The engine did what a job asked of it. */
  readonly recordSuccess: () => void;
  /** The engine failed a job; it is asked at once whether it still answers. */
  readonly recordFailure: () => void;
  /** The engine may have failed a job, or the job itself did: the engine is asked. */
  readonly checkSoon: () => void;
  /** Asks the engine now, for a run that was lost: false where it does not answer in time. */
  readonly checkNow: () => Promise<boolean>;
  /** Resolves once the engine has been asked for the first time. */
  readonly firstChecked: Promise<void>;
  /** Asks the engine every few seconds until `end`. */
  readonly run: (end: AbortSignal) => Promise<void>;
};

export type EngineWatchDeps = {
  /** Asks the engine whether it is there; throws where it does not answer. */
  readonly ping: (signal: AbortSignal) => Promise<void>;
  /** Asks the engine what it is, which costs it more: Docker executes its runtimes. Throws likewise. */
  readonly describe: (signal: AbortSignal) => Promise<EngineHealth>;
  /** Removes what dead agents and failed removals left on the engine. */
  readonly sweep: (signal: AbortSignal) => Promise<void>;
  /** Of the engine's calls those that failed so far. */
  readonly errors: () => EngineErrors;
  readonly clock: Clock;
  readonly changes: ChangeSignal;
  readonly log: Logger;
};

const PROBE_EVERY_MS = 5000;
const PROBE_TIMEOUT_MS = 5000;
const DESCRIBE_EVERY_MS = 60_000;
/** A removal that failed unnoticed is made up for within this time. */
const SWEEP_EVERY_MS = 60_000;

export function createEngineWatch(deps: EngineWatchDeps): EngineWatch {
  const { clock, changes, log } = deps;
  const firstChecked = Promise.withResolvers<void>();
  let health: EngineHealth = { available: false, version: null, runtimes: [] };
  let describedMs = clock.nowMs();
  let breaker = closedBreaker;
  /** Whether the engine stopped answering; only then do its answers prove that it is well again. */
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
    using timeout = deadline(clock, PROBE_TIMEOUT_MS);
    try {
      noteAnswer(await probe(AbortSignal.any([timeout.signal, ...(end ? [end] : [])])));
      return true;
    } catch (error) {
      if (!end?.aborted) noteSilence(error);
      return false;
    }
  }

  /** What the engine is: as it said last, unless that was a minute or an outage ago. */
  async function probe(signal: AbortSignal): Promise<EngineHealth> {
    if (health.available && clock.nowMs() - describedMs < DESCRIBE_EVERY_MS) {
      await deps.ping(signal);
      return health;
    }
    const described = await deps.describe(signal);
    describedMs = clock.nowMs();
    return described;
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
        log.warn("left-over containers stay for now: {reason}", { reason: describeError(error) });
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

const startIt = "; start the engine, or name another with docker_host";

/** What an operator can do about a socket that nobody answers at, or that is closed to the agent. */
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
