import { z } from "zod";
import { Problem } from "../errors.ts";
import { ExecutionStatus, JobId } from "../execution.ts";
import { atMost, JsonObjectSchema } from "../json-object.ts";
import { limits } from "../limits.ts";
import { ExecuteRequest, SubmittedJob } from "./submission.ts";
import { ShownTenant } from "../tenant.ts";
import { Timestamp } from "../timestamp.ts";

export const BatchRequest = z
  .strictObject({
    jobs: atMost(limits.batchMax, z.array(JsonObjectSchema).min(1)).meta({
      maxItems: limits.batchMax,
      items: { $ref: "#/components/schemas/AsyncSubmitRequest" },
      description:
        "Submissions, each as for `POST /execute/async`. In a batch that is not atomic, each is accepted or refused by itself.",
    }),
    atomic: z.boolean().default(false).meta({ description: "Accept all jobs or none." }),
    idempotency_key: ExecuteRequest.shape.idempotency_key.meta({
      description:
        "A repeat of the whole batch with this key gets the same batch. It is no key of a job.",
      example: "import-2026-11-22",
    }),
  })
  .meta({ id: "BatchRequest" });
export type BatchRequest = z.infer<typeof BatchRequest>;

export const SubmittedBatch = z
  .object({
    batch_id: JobId,
    created_at: Timestamp,
    jobs: z.array(z.union([SubmittedJob, Problem])).meta({
      description:
        "The answer for each job, in the order of the request: as from `POST /execute/async`, or why it was refused. A job that had its idempotency key before is shown, but is no member of the batch.",
    }),
  })
  .meta({ id: "SubmittedBatch" });
export type SubmittedBatch = z.infer<typeof SubmittedBatch>;

const BatchCounts = z
  .record(ExecutionStatus, z.int())
  .meta({ id: "BatchCounts", description: "The number of members with each status." });

export const Batch = z
  .object({
    batch_id: JobId,
    created_at: Timestamp,
    total: z.int().meta({ description: "Members; a removed execution does not count." }),
    finished: z.boolean().meta({ description: "Every member has ended." }),
    counts: BatchCounts,
    tenant: ShownTenant,
  })
  .meta({ id: "Batch" });
export type Batch = z.infer<typeof Batch>;
