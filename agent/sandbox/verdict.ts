import { constants } from "node:os";
import type { ExecutionErrorType } from "../../shared/wire/errors.ts";
import type { TerminalStatus, Timing } from "../../shared/wire/executions.ts";
import type { DisplayItem } from "./job.ts";

/** An uncaught exception, as the interpreter reported it before it printed the traceback. */
interface ExceptionReport {
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
type SkipReason =
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

interface Skipped {
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
interface Compilation {
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

/** Derives status, exit code and error, as in the contract, from the facts of a run. */
export function classify(report: RunReport): Verdict {
  switch (report.ending) {
    case "cancelled": {
      const phase = report.started ? "execution" : "startup";
      const error = { type: "cancelled", message: "The execution was cancelled.", phase } as const;
      return { status: "cancelled", exitCode: 143, error, phaseAtExit: phase };
    }
    case "timeout": {
      const { unansweredCall, executionMs } = report;
      const message =
        unansweredCall === null
          ? `The code was stopped after ${(executionMs / 1000).toFixed(1)} s, at its time limit.`
          : `The code was stopped: no answer to the tool call ${unansweredCall} came within tool_timeout.`;
      const error = { type: "execution_timeout", message, phase: "execution" } as const;
      return { status: "timeout", exitCode: null, error, phaseAtExit: "execution" };
    }
    case "sockets":
      return tooManySockets;
    case "locks":
      return tooManyLocks;
    case "interpreter_ended":
      return interpreterEnded;
    case "lost":
      if (report.outOfMemory) return outOfMemory;
      return failed(null, "internal_error", "The container ended before it could report.");
    case "exited":
      if (report.compiled && report.compiled.exitStatus !== 0)
        return failed(null, "compile_error", whyNotCompiled(report.compiled));
      if (report.outOfMemory) return report.exitStatus === 0 ? noMemoryForFiles : outOfMemory;
      return classifyExit(report);
  }
}

function whyNotCompiled({ exitStatus, timedOut, stdout, stderr }: Compilation): string {
  if (timedOut) return "The compiler was stopped at its time limit, compile_timeout.";
  if (exitStatus === null) return "The compiler was killed: it may need a larger memory_limit.";
  const [first = ""] = (stderr || stdout).trim().split("\n");
  return first === "" ? `The compiler exited with status ${exitStatus}.` : first.slice(0, 500);
}

const outOfMemory: Verdict = {
  ...failed(137, "oom", "The code was killed because it used up its memory limit."),
  status: "oom",
};

const noMemoryForFiles: Verdict = {
  ...failed(
    137,
    "oom",
    "The code ended, but left too little of its memory limit to send the files in /output.",
  ),
  status: "oom",
};

const tooManySockets: Verdict = {
  ...failed(
    137,
    "oom",
    "The code was killed because it had more sockets open than max_sockets of its job type: their memory counts against no other limit.",
  ),
  status: "oom",
};

const tooManyLocks: Verdict = {
  ...failed(
    137,
    "oom",
    "The code was killed because it had more than 4,096 locks of files: their memory counts against no other limit.",
  ),
  status: "oom",
};

const interpreterEnded = failed(
  null,
  "interpreter_ended",
  "The interpreter of the session has ended, and its variables with it. Its files are there. A call with restart gets another one.",
);

/** Signals of the contract's table; any other one is "killed". */
const signalTypes: Partial<Record<string, ExecutionErrorType>> = {
  SIGSEGV: "segfault",
  SIGABRT: "abort",
  SIGFPE: "arithmetic_error",
  SIGBUS: "bus_error",
  SIGPIPE: "pipe_error",
};

const reasonNames: Record<SkipReason, string> = {
  too_many_files: "too many files",
  too_many_bytes: "too many bytes",
  too_deep: "nested too deep",
  name_too_long: "name too long",
  not_a_regular_file: "no regular file",
  hard_link: "more than one hard link",
  unsafe_name: "unsafe name",
  unreadable: "unreadable",
  missing: "no such file",
  changed: "changed while it was read",
  not_searched: "not searched, because it is nested too deep or behind 20,000 other entries",
};

/**
 * Reasons that mean that the code exceeded a limit; the others concern entries that cannot be
 * artifacts.
 */
const limits = new Set<SkipReason>([
  "too_many_files",
  "too_many_bytes",
  "too_deep",
  "name_too_long",
]);

/** Names the entries of /output that are no artifacts, unless the error names them; undefined if there are no others. */
export function describeLeftOut(
  { skipped }: RunReport,
  { error }: Pick<Verdict, "error">,
): string | undefined {
  const isInError = error !== null && error.message === describeBeyond(skipped);
  const others = isInError ? skipped.filter(({ reason }) => !limits.has(reason)) : skipped;
  return others.length === 0 ? undefined : `Left out of the artifacts: ${describe(others)}.`;
}

/** What exceeds a limit, if anything does. */
function describeBeyond(skipped: RunReport["skipped"]): string | undefined {
  const beyond = skipped.filter(({ reason }) => limits.has(reason));
  if (beyond.length === 0) return undefined;
  return `/output goes over its limits, the rest is kept. ${describe(beyond)}.`;
}

function describe(skipped: RunReport["skipped"]): string {
  return skipped
    .map(({ reason, count, names }) => `${reasonNames[reason]}: ${count} (${names.join(", ")})`)
    .join("; ");
}

/** Whether the end of the sandbox decides how the run ended: the sandbox was lost, or the files of code that exited with 0. */
export const isCutShort = ({ ending, exitStatus, lostReason }: RunReport): boolean =>
  ending === "lost" || (ending === "exited" && exitStatus === 0 && lostReason !== null);

function classifyExit(report: RunReport): Verdict {
  const { exitStatus, exitSignal, exception } = report;
  if (exitSignal !== null) {
    const type = signalTypes[exitSignal] ?? "killed";
    return failed(signalExitCode(exitSignal), type, `The code was ended by ${exitSignal}.`);
  }
  if (exitStatus === null) return failed(null, "unknown", "Nobody knows how the code ended.");
  if (exitStatus === 0) return classifyOutput(report);
  if (exception !== null) {
    const { type, message } = errorTypeOfException(exception);
    return failed(exitStatus, type, message);
  }
  return failed(exitStatus, "runtime_error", `The code exited with status ${exitStatus}.`);
}

/** Code that exited with 0 may still have written output that cannot be returned. */
function classifyOutput(report: RunReport): Verdict {
  const { result, skipped, lostReason } = report;
  if (lostReason !== null) {
    return failed(0, "internal_error", "The files in /output could not be collected.");
  }
  if (result.kind === "invalid") {
    return failed(0, "json_error", `/output/result.json is not usable: ${result.problem}.`);
  }
  const beyond = describeBeyond(skipped);
  if (beyond !== undefined) return failed(0, "file_error", beyond);
  return { status: "succeeded", exitCode: 0, error: null, phaseAtExit: "completed" };
}

/** The exit code that a shell gives for a signal. */
function signalExitCode(name: string): number {
  return 128 + ((constants.signals as Record<string, number>)[name] ?? Number(name.slice(3)));
}

function failed(exitCode: number | null, type: ExecutionErrorType, message: string): Verdict {
  const error = { type, message, phase: "execution" } as const;
  return { status: "failed", exitCode, error, phaseAtExit: "failed" };
}

/**
 * Error types by class. The first row with the exception's class or one of its bases applies, so
 * specific rows come first: a JSONDecodeError is a ValueError, a gaierror an OSError.
 */
const types: readonly (readonly [ExecutionErrorType, readonly string[]])[] = [
  ["json_error", ["json.decoder.JSONDecodeError"]],
  [
    "network_timeout",
    [
      "builtins.TimeoutError",
      "socket.timeout",
      "asyncio.exceptions.TimeoutError",
      "concurrent.futures._base.TimeoutError",
      "requests.exceptions.Timeout",
      "urllib3.exceptions.TimeoutError",
      "httpx.TimeoutException",
    ],
  ],
  [
    "network_error",
    [
      "builtins.ConnectionError",
      "socket.gaierror",
      "socket.herror",
      "urllib.error.URLError",
      "http.client.HTTPException",
      "ssl.SSLError",
      "requests.exceptions.ConnectionError",
      "urllib3.exceptions.HTTPError",
      "httpx.TransportError",
      "aiohttp.client_exceptions.ClientConnectionError",
    ],
  ],
  ["permission", ["builtins.PermissionError"]],
  ["file_not_found", ["builtins.FileNotFoundError"]],
  ["file_error", ["builtins.IsADirectoryError", "builtins.NotADirectoryError"]],
  ["os_error", ["builtins.OSError"]],
  ["syntax_error", ["builtins.SyntaxError"]],
  ["import_error", ["builtins.ImportError"]],
  ["encoding_error", ["builtins.UnicodeError"]],
  ["value_error", ["builtins.ValueError"]],
  ["type_error", ["builtins.TypeError"]],
  ["key_error", ["builtins.KeyError"]],
  ["index_error", ["builtins.IndexError"]],
  ["attribute_error", ["builtins.AttributeError"]],
  ["name_error", ["builtins.NameError"]],
  ["recursion_error", ["builtins.RecursionError"]],
  ["assertion_error", ["builtins.AssertionError"]],
  ["division_error", ["builtins.ZeroDivisionError"]],
  ["overflow_error", ["builtins.OverflowError"]],
];

const foldersInMemory =
  "If a write failed: /output, /tmp and /dev/shm are part of the job's memory, so raise memory_limit of its job type.";

/** An exception's error type, and the last line of its traceback as the message. */
function errorTypeOfException({ mro, message }: ExceptionReport): {
  type: ExecutionErrorType;
  message: string;
} {
  const [type] = types.find(([, names]) => names.some((name) => mro.includes(name))) ?? [
    "runtime_error" as const,
  ];
  const name = (mro[0] ?? "").replace(/^(builtins|__main__)\./, "");
  // Source: errno(3), ENOSPC.
  const isFull = type === "os_error" && message.startsWith("[Errno 28]");
  const words = isFull ? `${message}. ${foldersInMemory}` : message;
  return { type, message: words === "" ? name : `${name}: ${words}` };
}
