import { decodeUtf8 } from "../../../shared/bytes.ts";
import { ConflictError, WaitTimeoutError } from "../../typescript/src/transport/errors.ts";
import type { ExecutionRecord, JobStatus } from "../../typescript/src/generated.ts";
import type { Verbs } from "../../typescript/src/verbs.ts";

/** The record of a job, or undefined if it does not end within `waitS`. */
export function waitForRecord(
  airlock: Verbs,
  id: string,
  waitS: number,
  signal?: AbortSignal,
): Promise<ExecutionRecord | undefined> {
  return airlock.wait(id, { waitS, signal }).catch((error: unknown) => {
    if (error instanceof WaitTimeoutError) return undefined;
    throw error;
  });
}

export async function readStatus(airlock: Verbs, id: string): Promise<JobStatus> {
  return (await (await airlock.request(`/jobs/${id}`)).json()) as JobStatus;
}

/** What a job has written to a stream so far. */
export async function readOutput(
  airlock: Verbs,
  id: string,
  stream: "stdout" | "stderr",
): Promise<string> {
  const answer = await airlock.request(`/jobs/${id}/logs?stream=${stream}`);
  return decodeUtf8(new Uint8Array(await answer.arrayBuffer()));
}

/** Cancels a job. One that has ended stays as it is. */
export async function cancel(airlock: Verbs, id: string): Promise<void> {
  await airlock.cancel(id).catch((error: unknown) => {
    if (!(error instanceof ConflictError)) throw error;
  });
}
