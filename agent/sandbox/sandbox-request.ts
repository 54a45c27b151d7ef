import type { WantedPackages } from "./package-request.ts";
import type { InputFile } from "./job.ts";
import type { SandboxSpec } from "./spec.ts";

/** The sandbox that a job needs. */
export type SandboxRequest = {
  readonly jobType: string;
  /** Whose job it is; empty if no job is known. */
  readonly tenant: string;
  readonly spec: SandboxSpec;
  /** Packages that its job asks for. */
  readonly packages: WantedPackages | null;
  /** Modules that its code is seen to import, where they may be imported ahead. */
  readonly imports: readonly string[];
  /** Files that its job has under /input. */
  readonly files: readonly InputFile[];
  /** It is for a session, which uses no slot. */
  readonly isSession?: true;
};

/**
 * Requests with the same key can use the same sandboxes: everything that is fixed before the job is known
 * is equal, except labels. Which GPUs a sandbox has does not matter: one with GPUs is opened for its job.
 */
export function kindKey({ jobType, spec }: SandboxRequest): string {
  const { labels: _, gpus, ...fixed } = spec;
  return JSON.stringify([jobType, fixed, gpus.length]);
}
