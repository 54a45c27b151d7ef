import type { WantedPackages } from "./package-request.ts";
import type { InputFile } from "./job.ts";
import type { SandboxSpec } from "./spec.ts";

/** The container that a job needs. */
export type SandboxRequest = {
  readonly jobType: string;
  readonly spec: SandboxSpec;
  /** Packages that its job asks for. */
  readonly packages: WantedPackages | null;
  /** Files that its job has under /input. */
  readonly files: readonly InputFile[];
};

/**
 * Requests with the same key can use the same containers: everything that is fixed at creation is
 * equal, except labels. Which GPUs a container has does not matter, because containers with GPUs
 * are started for one job each.
 */
export function kindKey({ jobType, spec }: SandboxRequest): string {
  const { labels: _, gpus, ...fixed } = spec;
  return JSON.stringify([jobType, fixed, gpus.length]);
}
