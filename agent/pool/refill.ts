import type { Logger } from "@logtape/logtape";
import { describeError } from "../../shared/log-line.ts";
import { backoffMs } from "../waiting/backoff.ts";
import type { Changes } from "../waiting/changes.ts";
import type { Clock } from "../waiting/clock.ts";
import { EngineError, type Sandbox } from "../sandbox/types.ts";
import type { Order } from "./order.ts";
import type { Shelf } from "./shelf.ts";

export type RefillDeps = {
  readonly start: (order: Order, signal: AbortSignal) => Promise<Sandbox>;
  /** The shelf to fill now, if there is one. */
  readonly next: () => Shelf | undefined;
  readonly put: (shelf: Shelf, sandbox: Sandbox) => void;
  /** The engine failed a start: it should be asked whether it is well. */
  readonly doubted: () => void;
  readonly clock: Clock;
  readonly changes: Changes;
  readonly log: Logger;
};

export type RefillSignals = {
  /** Start no more. */
  readonly end: AbortSignal;
  /** Give up the starts under way, too. */
  readonly halt: AbortSignal;
};

const FIRST_WAIT_MS = 500;
const LONGEST_WAIT_MS = 60_000;

/** Starts containers ahead of their jobs, one after the other, until `end`. */
export async function refill(deps: RefillDeps, { end, halt }: RefillSignals): Promise<void> {
  const { next, changes } = deps;
  for (;;) {
    await changes.until(() => end.aborted || next() !== undefined);
    if (end.aborted) return;
    const shelf = next();
    if (!shelf) continue;
    shelf.starting += 1;
    const sandbox = await start(deps, shelf, halt);
    shelf.starting -= 1;
    if (sandbox) deps.put(shelf, sandbox);
    while (shelf.waiting.length > shelf.starting) shelf.waiting.shift()?.(null);
    changes.tell();
  }
}

/** Starts one container; null where that failed, and the kind rests for a while. */
async function start(deps: RefillDeps, shelf: Shelf, halt: AbortSignal): Promise<Sandbox | null> {
  const { clock, log } = deps;
  const beganMs = clock.nowMs();
  try {
    const sandbox = await deps.start(shelf.order, halt);
    const tookMs = clock.nowMs() - beganMs;
    shelf.startMs = shelf.startMs === 0 ? tookMs : shelf.startMs * 0.7 + tookMs * 0.3;
    shelf.failures = 0;
    return sandbox;
  } catch (error) {
    if (halt.aborted) return null;
    shelf.failures += 1;
    const restMs = backoffMs(shelf.failures, FIRST_WAIT_MS, LONGEST_WAIT_MS);
    shelf.retryMs = clock.nowMs() + restMs;
    clock.sleep(restMs, halt).then(deps.changes.tell, () => {});
    log.warn("no container kept ready for {jobType}, next in {seconds} s: {reason}", {
      jobType: shelf.order.jobType,
      seconds: (restMs / 1000).toFixed(1),
      reason: describeError(error),
    });
    if (!(error instanceof EngineError)) return null;
    if (error.transient) deps.doubted();
    // Its image is gone, say: the next job of the kind has it tried again.
    else shelf.askedMs = 0;
    return null;
  }
}
