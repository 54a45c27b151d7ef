import type { Logger } from "@logtape/logtape";
import { describeError } from "../../shared/log-line.ts";
import { EngineError } from "../sandbox/errors.ts";
import { abortable } from "../waiting/abortable.ts";

/** Whether jobs can be forked on this host. They can, once a probe job has found its sandbox as it should be. */
export interface ForkHealth {
  /** Why jobs are not forked; null if they are. Begins a probe where one is due. */
  readonly problem: () => string | null;
  /** Resolves when the newest probe has ended; rejects with the signal's reason. */
  readonly probed: (signal: AbortSignal) => Promise<void>;
  /** After a mother or zygote failed to start, a probe must pass before the next job is forked. */
  readonly noteFailure: (error: unknown) => void;
}

/** The problem until the first probe has ended. */
const notProbed = "the probe job has not ended yet";
/** Pause in ms after so many failed probes in a row: 5 s, doubled each time, 2 minutes at most. */
const probeAgainMs = (failures: number): number => Math.min(5000 * 2 ** (failures - 1), 120_000);
/** How long a probe may take, with the start of its mother and zygote, in ms. */
const probeMs = 300_000;

/** @param probe runs the probe job; rejects where it finds a fault. */
export function createForkHealth(
  probe: (signal: AbortSignal) => Promise<void>,
  log: Logger,
): ForkHealth {
  let reason: string | null = notProbed;
  /** When the next probe is due; null while one runs, or after one that found no fault. */
  let dueMs: number | null = 0;
  /** The newest probe; never rejects. */
  let probing = Promise.resolve();
  /** Probes that failed in a row; those that did not reach the engine count as one. */
  let failures = 0;

  function setProblem(now: string | null, nextMs: number | null): void {
    dueMs = nextMs;
    const before = reason;
    reason = now;
    if (now === null && before !== null) {
      log.info("jobs are forked: the probe job found its sandbox as it should be");
    }
    // Logged once, even if each probe words the reason differently.
    if (now !== null && (before === null || before === notProbed)) {
      log.warn("jobs are not forked here: {reason}", { reason: now });
    }
  }

  async function runProbe(): Promise<void> {
    dueMs = null;
    try {
      await probe(AbortSignal.timeout(probeMs));
      failures = 0;
      setProblem(null, null);
    } catch (error) {
      const isOutOfReach = error instanceof EngineError && error.code === "unavailable";
      failures = isOutOfReach ? 1 : failures + 1;
      setProblem(describeError(error), performance.now() + probeAgainMs(failures));
    }
  }

  function problem(): string | null {
    if (dueMs !== null && performance.now() >= dueMs) probing = runProbe();
    return reason;
  }

  return {
    problem,
    async probed(signal) {
      if (problem() !== null) await abortable(probing, signal);
    },
    noteFailure(error) {
      if (error instanceof EngineError && error.code !== "image_not_found" && reason === null) {
        setProblem(describeError(error), 0);
      }
    },
  };
}
