import type { ExecutionErrorType } from "../../shared/wire/errors.ts";
import type { TerminalStatus, Timing } from "../../shared/wire/execution.ts";
import type { DisplayItem } from "./job.ts";

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
  | "missing"
  | "changed"
  | "not_searched"
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
 * How a run ended. "sockets", "locks": the code had too many. "interpreter_ended": before this call of a session. "lost": the container died or went silent before it
 * reported the end.
 */
export type Ending =
  | "exited"
  | "timeout"
  | "cancelled"
  | "sockets"
  | "locks"
  | "interpreter_ended"
  | "lost";

/** How the compiler ended. */
export interface Compilation {
  /** 0: it succeeded; null: a signal ended it. */
  readonly exitStatus: number | null;
  readonly timedOut: boolean;
  /** The beginning of what it printed. */
  readonly stdout: string;
  readonly stderr: string;
  readonly wallMs: number;
}

/** The facts of one run. */
export interface RunReport {
  readonly ending: Ending;
  /** Whether the code started. False only with "cancelled" and "lost". */
  readonly started: boolean;
  /** Null if no compiler ran to its end. */
  readonly compiled: Compilation | null;
  /** Exit status of the code; null if a signal ended it or it is unknown. */
  readonly exitStatus: number | null;
  /** Such as "SIGSEGV". */
  readonly exitSignal: string | null;
  readonly exception: ExceptionReport | null;
  /** The kernel killed the code, what sends its files, or the whole container because memory ran out. */
  readonly outOfMemory: boolean;
  /** Why a part of the run's output or files is missing, for the operator. */
  readonly lostReason: string | null;
  /**
   * If all was lost, or the files, for a forked job: whether its mother or zygote was lost too, so that the code is not the
   * cause. Undefined for a container.
   */
  readonly isHostLost?: boolean;
  readonly stdout: Uint8Array;
  readonly stderr: Uint8Array;
  readonly stdoutTruncated: boolean;
  readonly stderrTruncated: boolean;
  readonly result: ResultFile;
  readonly items: readonly DisplayItem[];
  /** Name of the first function whose call has no answer; null if there is none. */
  readonly unansweredCall: string | null;
  /** Something was left out of the items. */
  readonly itemsTruncated: boolean;
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
