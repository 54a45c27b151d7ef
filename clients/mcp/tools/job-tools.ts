import { z } from "zod";
import { JobId } from "../../../shared/wire/execution.ts";
import { tool } from "./call.ts";
import { follow, WaitSeconds } from "./follow.ts";
import { cancel, readStatus, waitForRecord } from "./requests.ts";
import { endedResult, JobOutcome, unfinishedResult } from "./result.ts";

export const getJob = tool({
  name: "get_job",
  title: "Wait for a job and get its result",
  describe: () =>
    "Returns the status of a job, and the same result as execute_code once it has ended. Waits for the end, at most `wait_seconds`.",
  input: z.strictObject({ job_id: JobId, wait_seconds: WaitSeconds }),
  output: JobOutcome,
  isReadOnly: true,
  run: (call, { job_id, wait_seconds }) => follow(call, job_id, wait_seconds),
});

/** Time for the agent to end the code and fetch its files. It learns of the cancellation at once. */
const endsWithinS = 5;

export const cancelJob = tool({
  name: "cancel_job",
  title: "Cancel a job",
  describe: () =>
    "Ends a queued or running job, and returns what it has written. A job that has ended stays as it is.",
  input: z.strictObject({ job_id: JobId }),
  output: JobOutcome,
  isReadOnly: false,
  async run({ airlock }, { job_id }) {
    await cancel(airlock, job_id);
    const record = await waitForRecord(airlock, job_id, endsWithinS);
    // A job that did not succeed is no error of this tool.
    if (record) return { ...(await endedResult(airlock, record)), isError: false };
    return unfinishedResult(airlock, await readStatus(airlock, job_id));
  },
});
