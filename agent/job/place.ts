import type { GpuLease } from "../backend/gpus.ts";
import type { JobFiles } from "../files/job-files.ts";
import type { Lease } from "../lease/leases.ts";
import type { Sandbox } from "../sandbox/sandbox.ts";
import type { SandboxSource } from "../sandbox/sandbox-source.ts";
import type { Acquired } from "./acquire.ts";
import {
  admitRequirements,
  installRequirements,
  type RequirementsDeps,
  wantPackages,
} from "./requirements.ts";
import { startUp, type StartUpDeps } from "./start-up.ts";

export type PlaceDeps = StartUpDeps & RequirementsDeps;

/** Where a job runs. Disposing it gives its sandbox back, once. */
export interface Place extends AsyncDisposable {
  readonly acquired: Acquired;
}

/**
 * Finds the place of a job.
 *
 * @param took is told the milliseconds that an installation of packages took.
 * @throws JobRefusal; EngineError; the reason of an aborted signal.
 */
export type FindPlace = (
  deps: PlaceDeps,
  lease: Lease,
  files: Pick<JobFiles, "fetch">,
  gpus: GpuLease,
  took: (ms: number) => void,
) => Promise<Place>;

/** Opens a sandbox for the job, with its packages. */
export const openPlace: FindPlace = async (deps, lease, files, gpus, took) => {
  admitRequirements(deps, lease.job);
  const want = (image: string) => wantPackages(deps, lease, image, took);
  const acquired = await startUp(deps, lease, gpus, want, files);
  const place = borrow(deps.sandboxes, lease, acquired);
  try {
    await installRequirements(deps, acquired);
    return place;
  } catch (error) {
    await place[Symbol.asyncDispose]();
    throw error;
  }
};

function borrow(
  sandboxes: Pick<SandboxSource, "giveBack" | "discard">,
  { drop }: Lease,
  acquired: Acquired,
): Place {
  const sandbox: Sandbox = acquired.sandbox;
  // If the lease is dropped, the sandbox is removed at once: the job may already run elsewhere.
  const discard = (): void => sandboxes.discard(sandbox);
  drop.signal.addEventListener("abort", discard);
  let isOurs = true;
  return {
    acquired,
    [Symbol.asyncDispose]: async () => {
      if (!isOurs) return;
      isOurs = false;
      drop.signal.removeEventListener("abort", discard);
      await sandboxes.giveBack(sandbox);
    },
  };
}
