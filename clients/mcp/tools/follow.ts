import type { CallToolResult } from "@modelcontextprotocol/server";
import { z } from "zod";
import type { Call } from "./call.ts";
import { startReporting } from "./progress.ts";
import { cancel, readStatus, waitForRecord } from "./requests.ts";
import { endedResult, unfinishedResult, unreadResult } from "./result.ts";

/** Clients give up after 60 s; the rest is for the way. */
export const WaitSeconds = z
  .int()
  .min(0)
  .max(50)
  .default(45)
  .describe("Seconds to wait for the end. A job that takes longer goes on.");

/** Waits for a job's end, at most `waitS`, and reports progress meanwhile. */
export async function follow(call: Call, id: string, waitS: number): Promise<CallToolResult> {
  const { airlock, signal } = call;
  const stopReporting = startReporting(call, id);
  try {
    const record = await waitForRecord(airlock, id, waitS, signal);
    return record
      ? await endedResult(airlock, record)
      : await unfinishedResult(airlock, await readStatus(airlock, id));
  } finally {
    stopReporting();
  }
}

/** Submits a job, and follows it. If the call is cancelled meanwhile, so is the job. */
export async function submitAndFollow(
  call: Call,
  submit: () => Promise<{ job_id: string }>,
  waitS: number,
): Promise<CallToolResult> {
  const { job_id } = await submit();
  const end = cancelOnAbort(call, job_id);
  try {
    return await follow(call, job_id, waitS);
  } catch (error) {
    if (call.signal.aborted) throw error;
    return unreadResult(job_id, error);
  } finally {
    end();
  }
}

/**
 * Cancels the job when the call is cancelled, until the returned function is called. The signal also
 * fires after a call has been answered, when the job may go on.
 */
function cancelOnAbort(call: Call, jobId: string): () => void {
  const { airlock, signal, abortCancels, keep } = call;
  const onAbort = (): void => {
    if (abortCancels()) keep(cancel(airlock, jobId));
  };
  signal.addEventListener("abort", onAbort);
  if (signal.aborted) onAbort();
  return () => signal.removeEventListener("abort", onAbort);
}
