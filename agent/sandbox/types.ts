import type { ExecutionErrorType } from "../../shared/wire/errors.ts";
import type { ContainerBackend, TerminalStatus, Timing } from "../../shared/wire/execution.ts";
import type { Loopback, NetworkMode } from "../../shared/wire/job-type.ts";
import type { PackageRequest } from "./package-request.ts";

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
  /** Whether system calls are filtered; false filters none. */
  readonly seccomp: boolean;
  /**
   * Where the packages are that are installed in it: in its memory or, so that neither it nor pip's
   * own memory bounds them, on disk. "none": it has no /packages.
   */
  readonly packages: "none" | "memory" | "disk";
  readonly env: Readonly<Record<string, string>>;
  /** Modules imported before the job arrives, with the rights of the code. */
  readonly preload: readonly string[];
  /** GPUs that only this container uses, by index or UUID. */
  readonly gpus: readonly string[];
}

export interface SandboxLabels {
  /** Id of this agent process, fresh at every start. */
  readonly agentId: string;
  /** Name of the agent, the same after a restart. */
  readonly agentName: string;
  /** The lease the container was made for; null for a container of the warm pool. */
  readonly leaseId: string | null;
}

export interface SandboxJob {
  /** Python source, UTF-8 where it is a string. */
  readonly code: string | Uint8Array;
  /** Text of /input/data.json. */
  readonly inputJson: string;
  /** What the code reads from its standard input. Without it, the code reads end of file. */
  readonly stdin?: string | undefined;
  /** The code's arguments. */
  readonly args?: readonly string[] | undefined;
  /** Time the code may run, counted inside the container from its first instruction. */
  readonly timeoutMs: number;
  /** Sockets that the code may have open; without it, any number. */
  readonly maxSockets?: number | undefined;
  readonly caps: {
    /** Bytes kept of stdout, and as many of stderr. */
    readonly streamBytes: number;
    /** Bytes kept of all artifacts together. */
    readonly artifactBytes: number;
  };
}

/** A file that the code finds at /input/<name>, read-only. */
export interface InputFile {
  /** A relative path, checked. */
  readonly name: string;
  readonly sizeBytes: number;
  /** Lower-case hex. */
  readonly sha256: string;
  /** The agent's file with the bytes. */
  readonly path: string;
}

export type StreamName = "stdout" | "stderr";

export interface RunOptions {
  /** Aborting it cancels the code: SIGTERM, a short grace, SIGKILL; then `run` still reports. */
  readonly signal: AbortSignal;
  /**
   * The agent's own folder, created with the first artifact. File names are numbers, never the
   * artifacts' names.
   */
  readonly spoolDir: string;
  readonly onStarted?: () => void;
  /** Receives live output up to half of the cap; a piece may end within a character. */
  readonly onOutput?: (stream: StreamName, bytes: Uint8Array) => void;
}

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
  /** The packages of its job are in it already. */
  readonly hasPackages?: true;
  /** Names of files that its job has under /input already, mounted: they use none of its memory. */
  readonly mounted?: ReadonlySet<string>;
  /** Aborts when the container dies or its stream ends while it waits for a job. */
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

/** An uncaught exception, as the interpreter reported it before it printed the traceback. */
export interface ExceptionReport {
  /** Class names with their modules, the exception's own first: "json.decoder.JSONDecodeError". */
  readonly mro: readonly string[];
  readonly message: string;
}

export interface SpooledArtifact {
  /** Relative to /output with "/" between folders; safe in a URL once percent-encoded. */
  readonly name: string;
  readonly sizeBytes: number;
  /** Lower-case hex. */
  readonly sha256: string;
  /** The agent's file with the bytes. */
  readonly path: string;
}

/** Why something in /output was not kept. */
export type SkipReason =
  | "not_a_regular_file"
  | "hard_link"
  | "unsafe_name"
  | "name_too_long"
  | "too_deep"
  | "too_many_files"
  | "too_many_bytes"
  | "unreadable";

export interface Skipped {
  readonly reason: SkipReason;
  readonly count: number;
  /** The first few, escaped to printable ASCII. */
  readonly names: readonly string[];
}

/** The state of /output/result.json. */
export type ResultFile =
  | { readonly kind: "absent" }
  /** Text of a JSON object, checked; numbers as the code wrote them. */
  | { readonly kind: "object"; readonly text: string }
  /** Not a usable object; a regular file is kept as the artifact "result.json". */
  | { readonly kind: "invalid"; readonly problem: string };

/**
 * How a run ended. "sockets": the code had too many. "lost": the container died or went silent before it
 * reported the end.
 */
export type Ending = "exited" | "timeout" | "cancelled" | "sockets" | "lost";

/** The facts of one run. */
export interface RunReport {
  readonly ending: Ending;
  /** Whether the code started. False only with "cancelled" and "lost". */
  readonly started: boolean;
  /** Exit status of the code; null if a signal ended it or it is unknown. */
  readonly exitStatus: number | null;
  /** Such as "SIGSEGV". */
  readonly exitSignal: string | null;
  readonly exception: ExceptionReport | null;
  /** The kernel killed the code or the whole container because memory ran out. */
  readonly outOfMemory: boolean;
  /** With "lost": the reason, for the operator. */
  readonly lostReason: string | null;
  /**
   * With "lost", for a forked job: whether its mother or zygote was lost too, so that the code is not the
   * cause. Undefined for a container.
   */
  readonly isHostLost?: boolean;
  readonly stdout: Uint8Array;
  readonly stderr: Uint8Array;
  readonly stdoutTruncated: boolean;
  readonly stderrTruncated: boolean;
  readonly result: ResultFile;
  readonly artifacts: readonly SpooledArtifact[];
  readonly skipped: readonly Skipped[];
  /** Milliseconds that the code ran. */
  readonly executionMs: number;
  /** Null if the container died before it reported its usage. */
  readonly usage: {
    readonly cpuTimeMs: number;
    readonly maxRssBytes: number;
    readonly wallTimeMs: number;
  } | null;
}

/** The status, exit code and error of a run, as in the contract. */
export interface Verdict {
  readonly status: TerminalStatus;
  readonly exitCode: number | null;
  readonly error: {
    readonly type: ExecutionErrorType;
    readonly message: string;
    readonly phase: "startup" | "execution";
  } | null;
  readonly phaseAtExit: Timing["phase_at_exit"];
}

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
