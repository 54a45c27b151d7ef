import { z } from "@hono/zod-openapi";
import {
  ExecutionRecord,
  executionStatuses,
  JobId,
  type ExecutionStatus,
} from "../../shared/wire/execution.ts";
import type { ListFilter } from "../store/jobs/list.ts";
import { jobId, sessionId } from "./examples/jobs.ts";
import { pageQuery, viewQuery } from "./parameters.ts";

const recordFields = Object.keys(ExecutionRecord.shape) as (keyof ExecutionRecord)[];

const time = (what: string) =>
  z.iso
    .datetime({ offset: true, error: "must be a time with its zone, such as 2026-11-21T00:00:00Z" })
    .optional()
    .openapi({
      description: `Only executions that were created ${what} this time. A date alone is refused: its day begins at another time in each zone.`,
    });

const pair = z.string().regex(/^[\w.-]{1,64}:/, "must be key:value");

/** The values of a parameter that may come several times. */
const several = <T extends z.ZodType>(values: z.ZodArray<T>) =>
  z.preprocess((given) => (given === undefined ? [] : [given].flat()), values);

const isStatus = (text: string): text is ExecutionStatus =>
  (executionStatuses as readonly string[]).includes(text);

/** The query of lists of executions. */
export const listQuery = z.object({
  status: several(z.array(z.string()).max(executionStatuses.length))
    // A fault names the parameter, not one of its values.
    .refine((all) => all.every(isStatus), `must be one of ${executionStatuses.join(", ")}`)
    .openapi({
      type: "array",
      items: { $ref: "#/components/schemas/ExecutionStatus" },
      default: [],
      description: "Only executions in this state. Repeat it to ask for several.",
      example: ["failed", "timeout"],
    }),
  job_type: z.string().optional(),
  parent_execution_id: z
    .string()
    .optional()
    .openapi({ description: "Only reruns and forks of this execution.", example: jobId }),
  batch_id: z.string().optional().openapi({ description: "Only members of this batch." }),
  session_id: z
    .string()
    .optional()
    .openapi({ description: "Only calls of this session.", example: sessionId }),
  kind: z.enum(["files", "all"]).optional().openapi({
    description:
      "Calls that read or write files of a session are left out. `files`: only these; `all`: these too.",
  }),
  metadata: several(z.array(pair).max(50)).openapi({
    type: "array",
    items: { type: "string" },
    default: [],
    description:
      "`key:value`: only executions whose metadata has it. Repeat it to ask for several.",
    example: ["order:4711"],
  }),
  error: z.string().min(1).max(200).optional().openapi({
    description:
      "Only executions whose error has this text in its type or message, in capital or small ASCII letters. In a long history, other filters make it faster.",
    example: "connection refused",
  }),
  created_after: time("at or after"),
  created_before: time("before"),
  before: JobId.optional().openapi({
    description:
      "Id of the last execution of the previous page. Unlike `offset`, it neither repeats nor leaves out executions while new ones arrive.",
    example: jobId,
  }),
  ...pageQuery,
  view: viewQuery,
  fields: z
    .string()
    .transform((text) => text.split(","))
    .pipe(z.array(z.enum(recordFields)))
    .optional()
    .openapi({
      type: "string",
      description:
        "Names of fields, separated by commas: records have these and their id alone, extended ones as well. A list without streams and output is much smaller.",
      example: "status,ended_at,metadata",
    }),
});
type ListQuery = z.output<typeof listQuery>;

export function filterOf(query: ListQuery): ListFilter {
  const { created_after, created_before } = query;
  return {
    statuses: query.status.filter(isStatus),
    error: query.error,
    jobType: query.job_type,
    parentId: query.parent_execution_id,
    batchId: query.batch_id,
    sessionId: query.session_id,
    kind: query.kind,
    metadata: query.metadata.map((text) => splitPair(text)),
    createdAfter: created_after === undefined ? undefined : Date.parse(created_after),
    createdBefore: created_before === undefined ? undefined : Date.parse(created_before),
    before: query.before,
  };
}

function splitPair(text: string): [string, string] {
  const colon = text.indexOf(":");
  return [text.slice(0, colon), text.slice(colon + 1)];
}
