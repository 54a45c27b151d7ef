import type { ContainerBackend } from "../../shared/wire/executions.ts";
import type { PoolKind } from "../../shared/wire/health.ts";
import type { Loopback, NetworkMode } from "../../shared/wire/job-types.ts";
import type { InputFile, PackageRequest, RunOptions, SandboxJob, WantedPackages } from "./job.ts";
import type { RunReport } from "./verdict.ts";

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
  readonly hasPackages?: true | undefined;
  /** Names of the files that are mounted under /input already. They use none of the job's memory. */
  readonly mounted?: ReadonlySet<string> | undefined;
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

/** A sandbox with another `run`. It is no copy: it goes on saying what `sandbox` says of itself. */
export function withRun(sandbox: Sandbox, run: Sandbox["run"]): Sandbox {
  const own = Object.getOwnPropertyDescriptors(sandbox);
  return Object.defineProperties({}, { ...own, run: { value: run, enumerable: true } }) as Sandbox;
}

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

/** Everything that is fixed before the job is known, so that a container can be started ahead. */
export interface SandboxSpec {
  /** Reference or id of an image with python3 ≥ 3.9 on its PATH. */
  readonly image: string;
  readonly labels: SandboxLabels;
  readonly memoryBytes: number;
  /** CPUs, in fractions. */
  readonly cpus: number;
  readonly pids: number;
  readonly network: NetworkMode;
  /** Sockets that the code may make: with a network, "full". */
  readonly loopback: Loopback;
  /** The engine's runtime by name; null for its default. */
  readonly runtime: string | null;
  /** Whether system calls are filtered. */
  readonly seccomp: boolean;
  /**
   * Where packages are installed: in the container's memory, or on disk, where that memory does not bound
   * them. "none": there is no /packages.
   */
  readonly packages: "none" | "memory" | "disk";
  readonly env: Readonly<Record<string, string>>;
  /** Modules imported before the job arrives, with the rights of the code. */
  readonly preload: readonly string[];
  /** The tenant from whose jobs the preload was learned. */
  readonly learnedFor?: string;
  /** GPUs that only this container uses, by index or UUID. */
  readonly gpus: readonly string[];
}

/** What a sandbox has where nothing else is said: one CPU, no network, all safeguards. */
export const plainSpec = {
  cpus: 1,
  network: "none",
  loopback: "tcp",
  runtime: null,
  seccomp: true,
  packages: "none",
  env: {},
  preload: [],
  gpus: [],
} as const satisfies Partial<SandboxSpec>;

export interface SandboxLabels {
  /** Id of this agent process, fresh at every start. */
  readonly agentId: string;
  /** Name of the agent, the same after a restart. */
  readonly agentName: string;
  /** The lease that the container was made for; null if it was started before its job came. */
  readonly leaseId: string | null;
}

/** Host name that the code finds. */
export const hostname = "sandbox";

/** Thread counts that libraries would otherwise derive from the host's CPUs. */
const threadCounts = [
  "OMP_NUM_THREADS",
  "OPENBLAS_NUM_THREADS",
  "MKL_NUM_THREADS",
  "NUMEXPR_NUM_THREADS",
  "PYTHON_CPU_COUNT",
];

/** The environment that a spec asks for, in addition to what its image sets. */
export function environmentOf({ cpus, env, gpus }: SandboxSpec): string[] {
  const count = String(Math.max(1, Math.ceil(cpus)));
  // Many images ask for all GPUs here, and a host whose default runtime is nvidia's would grant
  // them.
  const visible = { NVIDIA_VISIBLE_DEVICES: gpus.join(",") || "void" };
  const threads = Object.fromEntries(threadCounts.map((name) => [name, count]));
  const all = { ...threads, ...env, ...visible };
  return Object.entries(all).map(([name, value]) => `${name}=${value}`);
}

/** By name, what lines `NAME=value` say. */
export function variablesOf(lines: readonly string[]): Record<string, string> {
  return Object.fromEntries(
    lines.map((line) => {
      const at = line.indexOf("=");
      return [line.slice(0, at), line.slice(at + 1)];
    }),
  );
}

/** Bytes that the supervisor and a small program need. */
const processBytes = 28 * 1024 * 1024;

/** Sizes in bytes of /dev/shm, and of /tmp and /output each. */
export function temporaryFileSizes(memoryBytes: number): { shm: number; writable: number } {
  const forProcesses = Math.max(memoryBytes / 8, Math.min(processBytes, memoryBytes * 0.75));
  const seventh = Math.floor((memoryBytes - forProcesses) / 7);
  return { shm: seventh, writable: 3 * seventh };
}

export const labels = {
  agentId: "io.airlock.agent",
  agentName: "io.airlock.owner",
  /** Set by the engine's client, see host/alive.ts. */
  hostScope: "io.airlock.host-scope",
  leaseId: "io.airlock.lease",
} as const;

/**
 * The prefix of the names of an agent's containers: labels can come from an image, names cannot.
 */
export const namePrefix = (agentId: string): string => `airlock-${agentId}-`;

export type EngineErrorCode =
  | "unavailable"
  | "image_not_found"
  | "conflict"
  | "command_not_found"
  | "disk_full"
  /** The mother or a zygote failed; the engine may be well. */
  | "not_forked"
  | "other";

const transientCodes: readonly EngineErrorCode[] = [
  "unavailable",
  "disk_full",
  "not_forked",
  "other",
];

/**
 * The engine failed, or a container failed before its code started. If `transient`, a retry may
 * succeed.
 */
export class EngineError extends Error {
  override name = "EngineError";
  readonly code: EngineErrorCode;
  readonly transient: boolean;

  constructor(
    code: EngineErrorCode,
    message: string,
    { cause, transient }: { cause?: unknown; transient?: boolean } = {},
  ) {
    super(message, { cause });
    this.code = code;
    this.transient = transient ?? transientCodes.includes(code);
  }
}
