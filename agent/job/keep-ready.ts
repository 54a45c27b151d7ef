import type { Logger } from "@logtape/logtape";
import type { ReadyKind } from "../../shared/wire/agent/lease.ts";
import { describeError } from "../../shared/log-line.ts";
import { type AcquireDeps, sandboxRequest } from "./acquire.ts";
import type { Inventory } from "../image/inventory.ts";

export type KeepReadyDeps = Omit<AcquireDeps, "sandboxes"> & {
  readonly sandboxes: Pick<AcquireDeps["sandboxes"], "keepReadyFor">;
  readonly inventory: Inventory;
  readonly log: Logger;
};

/** Has sandboxes kept ready for jobs of these types, if their image is already on the engine. */
export async function keepReady(
  deps: KeepReadyDeps,
  kinds: readonly ReadyKind[],
  signal: AbortSignal,
): Promise<void> {
  const { images, sandboxes, inventory, log } = deps;
  for (const { job_type, image } of kinds) {
    // Containers with a GPU are not started ahead.
    if (job_type.gpus > 0 || !inventory.present().includes(image)) continue;
    try {
      const runtime = deps.chooseRuntime(deps.engine.health().runtimes);
      await deps.admission.admitJob({ job_type, image }, runtime, signal);
      sandboxes.keepReadyFor(
        sandboxRequest(deps, job_type, await images.resolve(image, signal), runtime),
      );
    } catch (error) {
      const jobType = job_type.name;
      log.warn("{jobType} is not kept ready: {reason}", { jobType, reason: describeError(error) });
    }
  }
}
