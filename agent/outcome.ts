import type { ExecutionError, ExecutionErrorType } from "../shared/errors.ts";
import type { ResultReport } from "../shared/lease.ts";
import { describeError } from "../shared/log-line.ts";
import { JobRefusal } from "./job-refusal.ts";
import type { Lease } from "./leases.ts";
import { resultWithoutReport, type Times } from "./result.ts";
import { EngineError, type SpooledArtifact } from "./sandbox/types.ts";

/** What there is to tell the API at the end of a lease. */
export type Outcome =
  | {
      readonly kind: "result";
      readonly result: ResultReport;
      readonly artifacts: readonly SpooledArtifact[];
    }
  | { readonly kind: "release"; readonly error: ExecutionError };

/** The outcome of a run that `error` ended: retried elsewhere only where no code had begun. */
export function outcomeOfFailure(error: unknown, lease: Lease, times: Times): Outcome {
  if (times.startedMs !== null) {
    const message = "The run was lost to a failure of the service.";
    return ended("failed", { type: "internal_error", message, phase: "execution" }, times);
  }
  if (lease.cancel.signal.aborted) return outcomeOfCancel(lease, times);
  if (error instanceof JobRefusal) {
    const status = error.type === "startup_timeout" ? "timeout" : "failed";
    return ended(status, startupError(error.type, error.message), times);
  }
  const code = error instanceof EngineError ? error.code : "other";
  if (code === "image_not_found" || code === "command_not_found") {
    return ended("failed", startupError("docker_error", describeError(error)), times);
  }
  if (code === "conflict") return ended("failed", startupError("internal_error", broken), times);
  if (code === "unavailable") return release("service_unavailable", unavailable);
  return release("internal_error", broken);
}

const unavailable = "The container engine is not available.";
const broken = "The container could not be started.";

/** An agent that stops leaves a job that has not begun to the next one. */
function outcomeOfCancel({ cancel }: Lease, times: Times): Outcome {
  if (cancel.signal.reason === "stopping") {
    return release("service_unavailable", "The agent stopped before the code began.");
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
