import type { Logger } from "@logtape/logtape";
import type { LeasedJob } from "../../shared/wire/agent/lease.ts";
import { describeError } from "../../shared/log-line.ts";
import type { Acquired } from "./acquire.ts";
import { ApiError } from "../api/errors.ts";
import type { Client } from "../api/client.ts";
import { filesOf, type JobFilesDeps } from "../files/job-files.ts";
import type { Gpus } from "../backend/gpus.ts";
import { JobRefusal } from "../policy/refusal.ts";
import { isStopped, type Lease } from "../lease/leases.ts";
import { createLiveReport, type LiveReport } from "./live-report.ts";
import { engineLost, type Outcome, failureOutcome, motherLost } from "./outcome.ts";
import { postOutcome } from "./post-outcome.ts";
import { type FindPlace, openPlace, type PlaceDeps } from "./place.ts";
import { resultOfReport } from "./result.ts";
import { EngineError } from "../sandbox/errors.ts";
import type { RunReport, Verdict } from "../sandbox/report.ts";
import type { SpoolDir } from "../sandbox/output/spool-dir.ts";

export type RunDeps = PlaceDeps &
  JobFilesDeps & {
    readonly client: Pick<
      Client,
      "started" | "logs" | "items" | "answers" | "upload" | "result" | "release" | "inputFile"
    >;
    readonly spool: Pick<SpoolDir, "folder">;
    readonly gpus: Pick<Gpus, "lease">;
    readonly judge: (report: RunReport) => Verdict;
    readonly log: Logger;
  };

/** The state of one run. */
type Run = {
  readonly lease: Lease;
  readonly live: LiveReport;
  installMs: number;
  startedMs: number | null;
};

/**
 * Runs one leased job, from its container to its posted result. Leaves no container and no file.
 * `takes` is called before the result is posted; if it returns true, the answer may bring the next
 * jobs, which are returned.
 *
 * @throws ApiError of kind `unauthorized`.
 */
export async function runLease(
  agent: RunDeps,
  lease: Lease,
  takes?: () => boolean,
  findPlace: FindPlace = openPlace,
): Promise<readonly LeasedJob[]> {
  const { correlation_id, traceparent } = lease.job;
  const log = agent.log.with({
    correlationId: correlation_id,
    ...(traceparent && { traceparent }),
  });
  // Before any await: the next poll must not offer these GPUs again.
  using gpus = agent.gpus.lease(lease.job.job_type.gpus);
  const deps = { ...agent, log };
  const run: Run = { lease, live: createLiveReport(deps, lease), installMs: 0, startedMs: null };
  try {
    await using folder = deps.spool.folder(lease.job.lease_id);
    const took = (ms: number): void => void (run.installMs = ms);
    await using files = filesOf(deps, lease.job);
    await using place = await findPlace(deps, lease, files, gpus, took);
    const outcome = await runCode(deps, run, place.acquired, folder.path);
    // Removing a container takes more CPU than a short job, so the result is posted first, unless
    // artifacts have to be uploaded before it.
    if (outcome.kind === "result" && outcome.artifacts.length > 0) {
      await place[Symbol.asyncDispose]();
      lease.leavePlace();
    }
    return await postOutcome(deps, lease, outcome, takes);
  } catch (error) {
    if (error instanceof ApiError) throw error;
    if (error instanceof JobRefusal)
      log.warn("the job is not run: {reason}", { reason: lastLine(error.message) });
    if (isInfrastructure(error, lease)) {
      log.error("run failed: {reason}", { reason: describeError(error) });
      // Before the lease is released: the next poll must not offer slots of an engine that is gone.
      await deps.engine.checkNow();
    }
    return await postOutcome(deps, lease, failureOutcome(error, lease, timesOf(deps, run)), takes);
  } finally {
    await run.live.close();
  }
}

/** The last line: pip puts the cause there. */
function lastLine(text: string): string {
  return text.slice(text.lastIndexOf("\n") + 1);
}

function isInfrastructure(error: unknown, { cancel, drop }: Lease): boolean {
  return !(error instanceof JobRefusal) && !cancel.signal.aborted && !drop.signal.aborted;
}

/** @throws EngineError if the code never started. */
async function runCode(
  deps: RunDeps,
  run: Run,
  acquired: Acquired,
  spoolDir: string,
): Promise<Outcome> {
  const { live } = run;
  const { cancel, drop } = run.lease;
  const { sandbox, jobRef } = acquired;
  const report = await sandbox.run(acquired.job, {
    signal: AbortSignal.any([cancel.signal, drop.signal]),
    spoolDir,
    onStarted: () => {
      run.startedMs = deps.clock.nowMs();
      live.started(jobRef);
    },
    onOutput: live.output,
    onItem: live.item,
    onCall: live.call,
  });
  live.ended();
  drop.signal.throwIfAborted();
  if (!report.started)
    throw new EngineError("other", report.lostReason ?? "the code did not begin");
  if (report.isHostLost && !cancel.signal.aborted)
    return (await deps.engine.checkNow()) ? motherLost : engineLost;
  const verdict = withStopReason(deps.judge(report), run.lease);
  // Code that kills its own container must not be run again; the lease is released only if the
  // engine is gone too. Where jobs are forked, the mother has already said whose fault the loss is.
  const mayBeOurs = verdict.error?.type === "internal_error" && report.isHostLost === undefined;
  if (mayBeOurs && !(await deps.engine.checkNow())) return engineLost;
  const stored = live.lastItemSent();
  const unsent = { ...report, items: report.items.filter(({ number }) => number > stored) };
  const result = resultOfReport(unsent, verdict, timesOf(deps, run), acquired);
  return { kind: "result", result, artifacts: report.artifacts };
}

function withStopReason(verdict: Verdict, lease: Lease): Verdict {
  const { error } = verdict;
  if (error?.type !== "cancelled" || !isStopped(lease)) return verdict;
  return { ...verdict, error: { ...error, message: "The agent was stopped while the code ran." } };
}

function timesOf({ clock }: RunDeps, { lease, installMs, startedMs }: Run) {
  return { takenMs: lease.takenMs, installMs, startedMs, endedMs: clock.nowMs() };
}
