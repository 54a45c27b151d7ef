import type { Sandbox, SandboxSpec } from "./sandbox/types.ts";

/** Where a job gets its container from. */
export type Pool = {
  /**
   * A container that waits for its one job; whoever acquires it closes it.
   *
   * @throws EngineError; the signal's reason.
   */
  readonly acquire: (spec: SandboxSpec, signal: AbortSignal) => Promise<Sandbox>;
};

export type StartSandbox = (spec: SandboxSpec, signal: AbortSignal) => Promise<Sandbox>;

/** Starts a container for each job. */
export function createPool(start: StartSandbox): Pool {
  return { acquire: start };
}
