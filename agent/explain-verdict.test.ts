import { expect, it } from "vitest";
import type { ExecutionErrorType } from "../shared/errors.ts";
import { explainVerdict } from "./explain-verdict.ts";
import { type Lease, RunCancelled } from "./leases.ts";
import type { Verdict } from "./sandbox/types.ts";
import { testJob } from "./testing/test-agent.ts";

function messageOf(type: ExecutionErrorType, requirements: string[], by?: "request" | "stop") {
  const job = testJob({ requirements });
  const lease: Lease = {
    job,
    takenMs: 0,
    cancel: new AbortController(),
    drop: new AbortController(),
  };
  if (by) lease.cancel.abort(new RunCancelled(by));
  const error = { type, message: "told", phase: "execution" } as const;
  const verdict: Verdict = { status: "failed", exitCode: 1, error, phaseAtExit: "failed" };
  return explainVerdict(verdict, lease).error?.message;
}

it.each([
  ["import_error", ["numpy"], undefined, /^told\. The request's requirements were ignored: /],
  ["import_error", [], undefined, /^told$/],
  ["value_error", ["numpy"], undefined, /^told$/],
  ["cancelled", [], "request", /^told$/],
  ["cancelled", [], "stop", /^The agent was stopped while the code ran\.$/],
] as const)("%s with %o, cancelled by %s", (type, requirements, by, message) => {
  expect(messageOf(type, [...requirements], by)).toMatch(message);
});
