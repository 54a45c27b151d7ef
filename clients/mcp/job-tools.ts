import { z } from "zod";
import { JobId } from "../../shared/wire/execution.ts";
import { cancel, readStatus, waitForRecord } from "./api.ts";
import { tool } from "./call.ts";
import { follow, WaitSeconds } from "./follow.ts";
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

export const cancelJob = tool({
  name: "cancel_job",
  title: "Cancel a job",
  describe: () => "Ends a queued or running job. A job that has ended stays as it is.",
  input: z.strictObject({ job_id: JobId }),
  output: JobOutcome,
  isReadOnly: false,
  async run({ api }, { job_id }) {
    await cancel(api, job_id);
    const record = await waitForRecord(api, job_id, 0);
    return record ? endedResult(api, record) : unfinishedResult(api, await readStatus(api, job_id));
  },
});
