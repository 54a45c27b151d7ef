import type { ExecutionErrorType } from "../../shared/wire/errors.ts";
import { reportWith } from "../sandbox/testing/report.ts";
import type { InputFile, SandboxJob, RunOptions } from "../sandbox/job.ts";
import type { Sandbox } from "../sandbox/sandbox.ts";
import type { RunReport, Verdict } from "../sandbox/report.ts";

/** A container that does what the test says and records what it was asked to do. */
export type FakeSandbox = Sandbox & {
  /** Ends it while it waits. */
  readonly die: (why?: { readonly outOfMemory: boolean }) => void;
  /** The variables of the session that it serves. */
  readonly sessionEnv: () => Readonly<Record<string, string>> | null;
  /** Resolves with the job and options once it runs. */
  readonly running: Promise<{ readonly job: SandboxJob; readonly options: RunOptions }>;
  /** Files that it was given. */
  readonly given: readonly InputFile[];
  /** Ends the run with a report. */
  readonly finish: (report?: Partial<RunReport>) => void;
  /** Ends the run with an error. */
  readonly fail: (error: Error) => void;
  /** Resolves once it has been closed. */
  readonly closed: Promise<void>;
  /** How often it was closed. */
  readonly closings: () => number;
};

/** After `run` the code starts, unless the test says otherwise; an abort gives a cancelled report. */
export function createFakeSandbox({ begins = true } = {}): FakeSandbox {
  const running = Promise.withResolvers<Awaited<FakeSandbox["running"]>>();
  const dying = new AbortController();
  let why: { readonly outOfMemory: boolean } | null = null;
  let sessionEnv: Readonly<Record<string, string>> | null = null;
  const ended = Promise.withResolvers<RunReport>();
  const closed = Promise.withResolvers<void>();
  const given: InputFile[] = [];
  let closings = 0;
  ended.promise.catch(() => {});
  const finish = (report: Partial<RunReport> = {}): void => ended.resolve(reportOf(report));
  return {
    backend: "engine",
    containerId: "c0ffee",
    pythonVersion: "3.13.5",
    preloadErrors: {},
    startupMs: 1,
    died: dying.signal,
    die: (reason) => {
      why = reason ?? null;
      finish({ ending: "lost", lostReason: "died", outOfMemory: reason?.outOfMemory ?? false });
      dying.abort();
    },
    sessionEnv: () => sessionEnv,
    install: () => Promise.resolve(),
    given,
    giveFiles: (files) => {
      given.push(...files);
      return Promise.resolve();
    },
    beginSession: (env) => void (sessionEnv = env),
    whyDied: () => Promise.resolve(why),
    run: (job, options) => {
      options.signal.addEventListener("abort", () => finish({ ending: "cancelled" }));
      if (begins) options.onStarted?.();
      running.resolve({ job, options });
      return ended.promise;
    },
    closings: () => closings,
    close: () => {
      closings += 1;
      closed.resolve();
      finish({ ending: "lost", lostReason: "closed" });
      return Promise.resolve();
    },
    running: running.promise,
    finish,
    fail: ended.reject,
    closed: closed.promise,
  };
}

function reportOf(report: Partial<RunReport> = {}): RunReport {
  const usage = { cpuTimeMs: 3, maxRssBytes: 10 * 1024 ** 2, wallTimeMs: 6 };
  return reportWith({ executionMs: 5, usage, ...report });
}

const verdicts: Record<RunReport["ending"], Verdict> = {
  exited: verdict("succeeded", 0, null, "completed"),
  timeout: verdict("timeout", null, "execution_timeout", "execution"),
  cancelled: verdict("cancelled", 143, "cancelled", "execution"),
  sockets: verdict("oom", 137, "oom", "failed"),
  locks: verdict("oom", 137, "oom", "failed"),
  interpreter_ended: verdict("failed", null, "interpreter_ended", "failed"),
  lost: verdict("failed", null, "internal_error", "failed"),
};

function verdict(
  status: Verdict["status"],
  exitCode: number | null,
  type: ExecutionErrorType | null,
  phaseAtExit: Verdict["phaseAtExit"],
): Verdict {
  const error = type && ({ type, message: type, phase: "execution" } as const);
  return { status, exitCode, error, phaseAtExit };
}

/** A verdict for tests that are not about verdicts. */
export function judgeSimply({ ending, exitStatus }: RunReport): Verdict {
  if (ending !== "exited" || exitStatus === 0) return verdicts[ending];
  return verdict("failed", exitStatus, "runtime_error", "failed");
}
