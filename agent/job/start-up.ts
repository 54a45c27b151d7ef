import { type AcquireDeps, type Acquired, acquireSandbox, type Want } from "./acquire.ts";
import { type Clock, deadline } from "../waiting/clock.ts";
import type { JobFiles } from "../files/job-files.ts";
import type { EngineMonitor } from "../health/engine-monitor.ts";
import type { GpuLease } from "../backend/gpus.ts";
import { JobRefusal } from "../policy/refusal.ts";
import type { Lease } from "../lease/leases.ts";
import { EngineError } from "../sandbox/errors.ts";

export type StartUpDeps = AcquireDeps & { readonly engine: EngineMonitor; readonly clock: Clock };

/**
 * Gets a sandbox for the lease's job within the job's startup_timeout.
 *
 * @throws JobRefusal; EngineError; the reason of an aborted signal.
 */
export async function startUp(
  deps: StartUpDeps,
  { job, drop, cancel }: Lease,
  gpus: GpuLease,
  want: Want,
  files: Pick<JobFiles, "fetch">,
): Promise<Acquired> {
  const { engine, clock } = deps;
  if (engine.slotsToOffer(1, 0) === 0) {
    throw new EngineError("unavailable", "circuit breaker open", { transient: true });
  }
  using limit = deadline(clock, job.startup_timeout_s * 1000);
  const signal = AbortSignal.any([drop.signal, cancel.signal, limit.signal]);
  try {
    const acquired = await acquireSandbox(deps, job, want, files, gpus, signal);
    engine.recordSuccess();
    return acquired;
  } catch (error) {
    if (error instanceof JobRefusal) throw error;
    if (limit.signal.aborted) {
      engine.checkSoon();
      const message = `The container did not start within ${job.startup_timeout_s} s.`;
      throw new JobRefusal("startup_timeout", message, { cause: error });
    }
    if (!signal.aborted && isOfEngine(error)) engine.recordFailure();
    throw error;
  }
}

function isOfEngine(error: unknown): boolean {
  return error instanceof EngineError && error.transient && error.code !== "not_forked";
}
