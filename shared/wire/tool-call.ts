import { z } from "zod";
import { ExecutionStatus, JobId } from "./execution.ts";
import { JsonObjectSchema } from "./json-object.ts";
import { limits } from "./limits.ts";

export const ToolAnswer = z
  .strictObject({
    result: z.unknown().optional().meta({
      description: "What the function returns: any JSON, null included.",
      example: 380,
    }),
    error: z
      .string()
      .refine((text) => text.isWellFormed(), "must not contain unpaired surrogates")
      .optional()
      .meta({ description: "The message of the ToolError that the function raises." }),
  })
  .refine((answer) => Object.keys(answer).length === 1, "must have either result or error")
  .meta({ id: "ToolAnswer", minProperties: 1, maxProperties: 1 });
export type ToolAnswer = z.infer<typeof ToolAnswer>;

/** A call that the code has made. Name and arguments are what the code says: treat them as input of a stranger. */
export const ToolCall = z
  .object({
    number: z.int().min(1).max(limits.runItemsMax).meta({
      description: "Names the call. Calls and results are numbered together.",
    }),
    name: z.string().meta({ example: "get_price" }),
    arguments: JsonObjectSchema.meta({ example: { item: "tea" } }),
    stdout_at: z.int().min(0).meta({ description: "Bytes of stdout that come before it." }),
    stderr_at: z.int().min(0),
    answer: ToolAnswer.optional(),
  })
  .meta({
    id: "ToolCall",
    description: "A call of one of the caller's functions; in lists, with the answer that it has.",
  });
export type ToolCall = z.infer<typeof ToolCall>;

export const ToolCalls = z
  .object({
    job_id: JobId,
    status: ExecutionStatus,
    calls: z.array(ToolCall).meta({
      description: "Those that wait for an answer, with `all` also the others, in order.",
    }),
  })
  .meta({ id: "ToolCalls" });
export type ToolCalls = z.infer<typeof ToolCalls>;

export const AnsweredCall = z
  .object({ job_id: JobId, number: z.int() })
  .meta({ id: "AnsweredCall" });
