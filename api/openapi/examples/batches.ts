import type { z } from "@hono/zod-openapi";
import type { Batch, BatchRequest, SubmittedBatch } from "../../../shared/wire/client/batch.ts";
import { problemOf, AppError } from "../../errors.ts";
import { correlationId, jobId, submittedJob } from "./jobs.ts";

/** A batch of three jobs, the last of which was refused. */

export const batchId = "019aa5f1-0d2f-7b11-8e4c-5b6d7f8091a2";
const created_at = submittedJob.created_at;

export const batchRequest: z.input<typeof BatchRequest> = {
  jobs: [
    { code: "print(1)", metadata: { part: "1" } },
    { code: "print(2)", metadata: { part: "2" } },
    { code: "print(3)", idempotency_key: "order-4711" },
  ],
};

export const submittedBatch: SubmittedBatch = {
  batch_id: batchId,
  created_at,
  jobs: [
    submittedJob,
    { ...submittedJob, job_id: "019aa5f0-6c1e-7c3a-8d53-2f1f3a6b9c11", queue_position: 2 },
    problemOf(
      new AppError(
        "conflict",
        `The idempotency key was used with a different payload, for job ${jobId}. Use a new key.`,
        { existing_job_id: jobId, job_id: jobId },
      ),
      correlationId,
    ),
  ],
};

export const batch: Batch = {
  batch_id: batchId,
  created_at,
  total: 3,
  finished: false,
  counts: { queued: 1, running: 1, succeeded: 0, failed: 0, timeout: 0, oom: 0, cancelled: 1 },
};
