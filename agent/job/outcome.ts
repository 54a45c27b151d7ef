import type { ExecutionError, ExecutionErrorType } from "../../shared/wire/errors.ts";
import type { ResultReport } from "../../shared/wire/agent/lease.ts";
import { JobRefusal } from "../policy/refusal.ts";
import { isStopped, type Lease } from "../lease/leases.ts";
import { resultWithoutReport, type Times } from "./result.ts";
import { EngineError } from "../sandbox/errors.ts";
import type { SpooledArtifact } from "../sandbox/report.ts";

/** What the agent reports to the API at the end of a lease. */
export type Outcome =
  | {
      readonly kind: "result";
      readonly result: ResultReport;
      readonly artifacts: readonly SpooledArtifact[];
    }
  | { readonly kind: "release"; readonly error: ExecutionError; readonly agentStops?: true };

/** The outcome when the engine was lost while the code ran. */
export const engineLost: Outcome = {
  kind: "release",
  error: {
    type: "internal_error",
    message: "The container engine was lost while the code ran.",
    phase: "execution",
  },
};

/** The outcome when the container that forks the jobs was lost while the code ran. */
export const motherLost: Outcome = {
  kind: "release",
  error: {
    type: "internal_error",
    message: "The container in which jobs are forked was lost while the code ran.",
    phase: "execution",
  },
};

/** The outcome of a run whose files the agent could not store. */
const diskFailed: Outcome = {
  kind: "release",
  error: {
    type: "internal_error",
    message: "The agent could not store the files that the code wrote.",
    phase: "execution",
  },
};

const diskCodes = new Set(["ENOSPC", "EDQUOT", "EROFS", "EIO"]);

/** Source: open(2), write(2). */
function isOfTheDisk(error: unknown): boolean {
  return error instanceof Error && diskCodes.has((error as NodeJS.ErrnoException).code ?? "");
}

/**
 * The outcome of a run that `error` ended. It is retried elsewhere only if the code had not started
 * or the agent's disk failed.
 */
export function failureOutcome(
  error: unknown,
  lease: Pick<Lease, "cancel">,
  times: Times,
): Outcome {
  if (isOfTheDisk(error)) return diskFailed;
  if (times.startedMs !== null) {
    const message = "The run was lost to a failure of the service.";
    return ended("failed", { type: "internal_error", message, phase: "execution" }, times);
  }
  if (lease.cancel.signal.aborted) return outcomeOfCancel(lease, times);
  if (error instanceof JobRefusal) {
    const status = error.type === "startup_timeout" ? "timeout" : "failed";
    return ended(status, startupError(error.type, error.message), times);
  }
  if (!(error instanceof EngineError)) return release("internal_error", broken);
  if (error.code === "image_not_found" || error.code === "command_not_found") {
    return ended("failed", startupError("docker_error", error.message), times);
  }
  if (!error.transient) return ended("failed", startupError("internal_error", broken), times);
  if (error.code === "unavailable") return release("service_unavailable", unavailable);
  return release("internal_error", error.code === "disk_full" ? fullDisk : broken);
}

const unavailable = "The container engine is not available.";
const broken = "The container could not be started.";
const fullDisk = "The disk of the container engine is full.";

/** An agent that stops hands back a job whose code has not started. */
function outcomeOfCancel(lease: Pick<Lease, "cancel">, times: Times): Outcome {
  if (isStopped(lease)) {
    const error = startupError("service_unavailable", "The agent stopped before the code began.");
    return { kind: "release", error, agentStops: true };
  }
  return ended("cancelled", startupError("cancelled", "Cancelled before the code began."), times);
}

function release(type: ExecutionErrorType, message: string): Outcome {
  return { kind: "release", error: startupError(type, message) };
}

function ended(
  status: "failed" | "timeout" | "cancelled",
  error: ExecutionError,
  times: Times,
): Outcome {
  return { kind: "result", result: resultWithoutReport(status, error, times), artifacts: [] };
}

function startupError(type: ExecutionErrorType, message: string): ExecutionError {
  return { type, message, phase: "startup" };
}
