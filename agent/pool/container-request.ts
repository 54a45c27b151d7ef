import type { SandboxSpec } from "../sandbox/types.ts";

/** What a job needs of its container. */
export type ContainerRequest = { readonly jobType: string; readonly spec: SandboxSpec };

/**
 * Requests of one kind take the same containers: equal in all that is fixed at creation but labels.
 * Those with GPUs are started for one job each, so that which ones it has makes no other kind.
 */
export function kindKey({ jobType, spec }: ContainerRequest): string {
  const { labels: _, gpus, ...fixed } = spec;
  return JSON.stringify([jobType, fixed, gpus.length]);
}
