import { z } from "zod";
import { JobId } from "../../shared/wire/execution.ts";
import { ExecuteRequest, SubmittedJob } from "../../shared/wire/submission.ts";
import { cancel, post, readStatus, waitForRecord } from "./api.ts";
import { type Call, tool } from "./call.ts";
import { describeJobTypes } from "./facts.ts";
import { follow, wait } from "./follow.ts";
import { endedResult, JobOutcome, unfinishedResult } from "./result.ts";

const WaitSeconds = z
  .int()
  .min(0)
  .max(wait.maxS)
  .default(wait.defaultS)
  .describe("Seconds to wait for the end. A job that takes longer goes on.");

const { code, input_data, timeout, requirements } = ExecuteRequest.shape;

export const executeCode = tool({
  name: "execute_code",
  title: "Run Python code",
  describe: (
    facts,
  ) => `Runs Python code in a new isolated container and returns what it wrote. Nothing is kept from one call to the next.
- print() to stdout and stderr; both come back, the head and tail of long text.
- \`input_data\` is at /input/data.json.
- A JSON object written to /output/result.json comes back as \`output\`.
- Every other file written to /output is kept: pictures (PNG, JPEG, GIF, WebP up to 1 MiB) come back as images, e.g. plt.savefig("/output/plot.png"); other files as links, for read_artifact.
- /tmp is writable too, everything else is not. There is no network, and pip cannot be called, unless the operator allows it.
- If the job takes longer than \`wait_seconds\`, the answer has its job_id and it goes on: call get_job.
${describeJobTypes(facts)}`,
  input: z.strictObject({
    code: code.describe("Python source."),
    input_data: input_data
      .optional()
      .meta({ type: "object", description: "JSON for the code, at /input/data.json." }),
    job_type: z.string().optional().describe("Name of a job type; default: `default`."),
    timeout: timeout.describe("Time limit of the code in seconds."),
    requirements: requirements
      .optional()
      .describe("Packages to install first (PEP 508); only if the operator allows it."),
    wait_seconds: WaitSeconds,
  }),
  output: JobOutcome,
  isReadOnly: false,
  async run(call, { wait_seconds, ...request }) {
    const body = { ...request, metadata: call.metadata };
    const { job_id } = SubmittedJob.parse(await post(call.api, "/execute/async", body));
    const end = cancelOnAbort(call, job_id);
    try {
      return await follow(call, job_id, wait_seconds);
    } finally {
      end();
    }
  },
});

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

/**
 * Cancels the job when the call is cancelled, until the returned function is called. The signal also
 * fires after a call has been answered, when the job may go on.
 */
function cancelOnAbort(call: Call, jobId: string): () => void {
  const { api, signal, abortCancels, keep } = call;
  const onAbort = (): void => {
    if (abortCancels()) keep(cancel(api, jobId));
  };
  signal.addEventListener("abort", onAbort);
  if (signal.aborted) onAbort();
  return () => signal.removeEventListener("abort", onAbort);
}
