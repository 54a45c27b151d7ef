import { isStopped, type Lease } from "./leases.ts";
import type { Verdict } from "./sandbox/types.ts";

/** The verdict with what only the agent knows of the reason for its error. */
export function explainVerdict(verdict: Verdict, lease: Lease): Verdict {
  const { error } = verdict;
  if (error?.type === "cancelled" && isStopped(lease)) {
    return {
      ...verdict,
      error: { ...error, message: "The agent was stopped while the code ran." },
    };
  }
  if (error?.type === "import_error" && lease.job.requirements.length > 0) {
    const message = `${error.message}. ${requirementsIgnored}`;
    return { ...verdict, error: { ...error, message } };
  }
  return verdict;
}

const requirementsIgnored =
  "The request's requirements were ignored: installing them at run time is not enabled.";
