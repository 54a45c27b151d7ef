import type { PoolKind } from "../../shared/wire/health.ts";
import type { SandboxJob } from "./job.ts";
import type { Sandbox } from "./sandbox.ts";
import type { SandboxRequest } from "./sandbox-request.ts";

/** Gives jobs their sandboxes: containers, or forks. */
export interface SandboxSource {
  /**
   * Takes a sandbox for a job; the caller gives it back. A job that needs no more than the request says may begin
   * before the caller has the sandbox.
   *
   * @throws EngineError; the signal's reason.
   */
  readonly acquire: (
    request: SandboxRequest,
    signal: AbortSignal,
    job?: SandboxJob,
  ) => Promise<Sandbox>;
  /**
   * Takes a sandbox back after its job, and removes it in the background. Resolves at once, unless
   * more removals are pending than there are slots. Safe to call twice.
   */
  readonly giveBack: (sandbox: Sandbox) => Promise<void>;
  /** Removes an acquired sandbox, even while it runs. */
  readonly discard: (sandbox: Sandbox) => void;
  /** Keeps sandboxes ready for requests like this one. */
  readonly keepReadyFor: (request: SandboxRequest) => void;
  readonly stats: () => PoolKind[];
  /** Whether jobs get large files mounted, which uses none of their memory. Jobs in containers never do. */
  readonly mountsFiles: () => boolean;
  /** Whether the container with this label belongs to this source, and is not removed. */
  readonly owns: (label: string) => boolean;
  /**
   * Starts no more sandboxes ahead and removes the waiting ones; resolves when no removal is
   * pending. Jobs may still run: the agent closes it again when they have ended.
   */
  readonly close: () => Promise<void>;
}
