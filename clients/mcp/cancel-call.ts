import { isTerminal } from "../../shared/wire/execution.ts";
import { ProblemError } from "../typescript/src/transport/errors.ts";
import type { Verbs } from "../typescript/src/verbs.ts";

/** Metadata by which any process finds the jobs of a call. A value of an execution's metadata has at most 512 characters. */
export function markOf(session: string, requestId: string | number): Record<string, string> {
  const call = `${session}:${JSON.stringify(requestId)}`;
  return call.length <= 512 ? { mcp_call: call } : {};
}

const lookAgainAfterMs = 1000;
/** The longest time that a call waits for its job. */
const callLastsMs = 10 * 60_000;

/**
 * Cancels the jobs of a call. The call may still be storing its job, so it looks twice.
 *
 * @throws ProblemError if the service cannot do that now.
 */
export async function cancelCall(airlock: Verbs, mark: Record<string, string>): Promise<void> {
  if (Object.keys(mark).length === 0) return;
  const created_after = new Date(Date.now() - callLastsMs).toISOString();
  for (const pauseMs of [0, lookAgainAfterMs]) {
    await new Promise((resolve) => setTimeout(resolve, pauseMs));
    const cancelled: Promise<void>[] = [];
    let found = 0;
    for await (const job of airlock.list({ metadata: mark, created_after })) {
      found++;
      if (!isTerminal(job.status)) cancelled.push(cancelOpen(airlock, job.execution_id));
    }
    await Promise.all(cancelled);
    if (found > 0) return;
  }
}

/** A job may end meanwhile. */
async function cancelOpen(airlock: Verbs, id: string): Promise<void> {
  await airlock.cancel(id).catch((error: unknown) => {
    if (!(error instanceof ProblemError) || error.status >= 500) throw error;
  });
}
