import { z } from "zod";
import { pageOf } from "../page.ts";
import { ExecutionErrorType } from "../errors.ts";
import { JsonObjectSchema } from "../json-object.ts";
import { ShownTenant } from "../tenant.ts";
import { Timestamp } from "../timestamp.ts";

const DeadLetterJob = z
  .object({ code: z.string(), input_data: JsonObjectSchema, job_type: z.string() })
  .meta({ id: "DeadLetterJob", description: "What was submitted." });

/** An asynchronous execution that ended failed, timeout or oom. */
export const DeadLetter = z
  .object({
    id: z.int(),
    job_id: z.string(),
    job_data: DeadLetterJob,
    error_type: ExecutionErrorType,
    error_message: z.string(),
    retry_count: z.int().meta({ description: "Attempts after the first." }),
    created_at: Timestamp,
    client_ip: z.string(),
    correlation_id: z.string(),
    tenant: ShownTenant,
  })
  .meta({ id: "DeadLetter" });
export type DeadLetter = z.infer<typeof DeadLetter>;

export const DeadLetterPage = pageOf(DeadLetter).meta({ id: "DeadLetterPage" });
export type DeadLetterPage = z.infer<typeof DeadLetterPage>;

export const DeadLetterStats = z
  .object({
    total: z.int(),
    by_error_type: z.record(z.string(), z.int()),
    oldest_created_at: Timestamp.nullable(),
  })
  .meta({ id: "DeadLetterStats" });
export type DeadLetterStats = z.infer<typeof DeadLetterStats>;

export const DeadLetterDeleted = z
  .object({ id: z.int(), deleted: z.literal(true) })
  .meta({ id: "DeadLetterDeleted" });
export type DeadLetterDeleted = z.infer<typeof DeadLetterDeleted>;
