import type { ContainerBackend } from "../../shared/wire/execution.ts";
import type { InputFile, RunOptions, SandboxJob } from "./job.ts";
import type { PackageRequest } from "./package-request.ts";
import type { RunReport } from "./report.ts";

/** A container whose supervisor waits for a job. */
export interface Sandbox {
  readonly backend: ContainerBackend;
  readonly containerId: string;
  /** Such as "3.13.5". */
  readonly pythonVersion: string;
  /** Failed preloads: module name to the error's text. The code meets the same error itself. */
  readonly preloadErrors: Readonly<Record<string, string>>;
  /** Milliseconds from the create call to ready. */
  readonly startupMs: number;
  /** Whether the packages of its job are mounted already. */
  readonly hasPackages?: true;
  /** Names of the files that are mounted under /input already. They use none of the job's memory. */
  readonly mounted?: ReadonlySet<string>;
  /** Aborts when the container dies or its stream ends while it waits for a job, and at any time in a session. */
  readonly died: AbortSignal;
  /**
   * Installs packages into /packages before the job; the container can then run only that job.
   *
   * @throws InstallError in pip's own words; EngineError; the signal's reason on abort.
   */
  install(packages: PackageRequest, signal: AbortSignal): Promise<void>;
  /**
   * Gives the code files under /input, before its job.
   *
   * @throws EngineError; the disk's errors; the signal's reason.
   */
  giveFiles(files: readonly InputFile[], signal: AbortSignal): Promise<void>;
  /** Makes it serve calls from now on: jobs with `call`, one at a time. The variables are in the code's environment. */
  beginSession(env: Readonly<Record<string, string>>): void;
  /** How a session ended that has died: whether memory ran out. Null if nobody knows. */
  whyDied(): Promise<{ readonly outOfMemory: boolean } | null>;
  /**
   * Runs its job. If the code fails, hangs or kills its container, the report says so.
   *
   * @throws EngineError if the container is lost before the code starts.
   */
  run(job: SandboxJob, options: RunOptions): Promise<RunReport>;
  /**
   * Removes the container by force; safe to call twice.
   *
   * @throws EngineError if the engine does not do so in time.
   */
  close(): Promise<void>;
}
