import { z } from "zod";
import { pageOf } from "./page.ts";
import { Attempt } from "./attempt.ts";
import { ExecutionError } from "./errors.ts";
import { JsonObjectSchema } from "./json-object.ts";
import { limits } from "./limits.ts";
import { orNull } from "../or-null.ts";
import { results } from "./result-item.ts";
import { ShownTenant } from "./tenant.ts";
import { Timestamp } from "./timestamp.ts";
import { Tool } from "./tool.ts";

export const containerBackends = ["engine", "zygote"] as const;
export const ContainerBackend = z.enum(containerBackends).meta({
  id: "ContainerBackend",
  description:
    "engine: a container of its own; zygote: a fork of a running interpreter, in namespaces of its own.",
});
export type ContainerBackend = z.infer<typeof ContainerBackend>;

/** States of an execution record: docs/contract.md 5.1. */
export const executionStatuses = [
  "queued",
  "running",
  "succeeded",
  "failed",
  "timeout",
  "oom",
  "cancelled",
] as const;
export const ExecutionStatus = z.enum(executionStatuses).meta({
  id: "ExecutionStatus",
  description: "queued and running are not final; all others are.",
});
export type ExecutionStatus = z.infer<typeof ExecutionStatus>;

export const terminalStatuses = ["succeeded", "failed", "timeout", "oom", "cancelled"] as const;
export const TerminalStatus = z.enum(terminalStatuses);
export type TerminalStatus = z.infer<typeof TerminalStatus>;

export function isTerminal(status: ExecutionStatus): status is TerminalStatus {
  return (terminalStatuses as readonly string[]).includes(status);
}

export const JobId = z.uuid().meta({ example: "019aa5f0-6c1e-7c3a-8d53-2f1f3a6b9c10" });

/** How the compiler of a job's language ended. */
export const Compilation = z
  .object({
    exit_code: z.int().nullable().meta({ description: "null if a signal ended it." }),
    stdout: z.string().max(100_000).meta({ description: "The beginning of what it printed." }),
    stderr: z.string().max(100_000),
    ms: z
      .int()
      .meta({ description: "Milliseconds that it took; they are not part of `execution_ms`." }),
  })
  .meta({ id: "Compilation" });
export type Compilation = z.infer<typeof Compilation>;

const Warnings = z.array(z.string()).meta({
  description:
    "What of the request or of /output was left out without an error: `requirements` that the service does not install, files that cannot be artifacts. Left out where there is none.",
});

export const SyncResult = z
  .object({
    success: z.boolean().meta({ description: "The run finished without error." }),
    output: orNull(JsonObjectSchema).meta({ description: "Parsed /output/result.json." }),
    stdout: z.string(),
    stderr: z.string(),
    exit_code: z.int().nullable(),
    execution_time: z.number().meta({ description: "Wall clock seconds." }),
    error: orNull(ExecutionError),
    job_type: z.string(),
    job_id: JobId.meta({ description: "Id of the execution's record and artifacts." }),
    ...results,
    compile: Compilation.optional(),
    warnings: Warnings.optional(),
  })
  .meta({ id: "SyncResult" });
export type SyncResult = z.infer<typeof SyncResult>;

export const JobStatus = z
  .object({
    job_id: JobId,
    status: ExecutionStatus,
    created_at: Timestamp,
    started_at: Timestamp.nullable(),
    message: z.string().optional().meta({ description: "Why a queued job waits." }),
    cancel_requested: z.boolean().optional(),
    tenant: ShownTenant,
  })
  .meta({ id: "JobStatus" });
export type JobStatus = z.infer<typeof JobStatus>;

export const relationships = ["rerun", "fork"] as const;
export const Relationship = z.enum(relationships).meta({
  id: "Relationship",
  description: "rerun: the parent's code again; fork: new code on the parent's input.",
});

const PhaseAtExit = z
  .enum(["startup", "execution", "completed", "failed"])
  .meta({ id: "PhaseAtExit", description: "How far the container got." });

export const Timing = z
  .object({
    startup_ms: z.int().meta({ description: "Container start plus dependency install." }),
    dep_install_ms: z.int().meta({ description: "The part of start-up spent installing." }),
    execution_ms: z.int().meta({ description: "Time of the submitted code." }),
    total_ms: z.int().meta({
      description: "From the agent taking the job to the end of collecting its output.",
    }),
    phase_at_exit: PhaseAtExit,
  })
  .meta({ id: "Timing" });
export type Timing = z.infer<typeof Timing>;

export const ResourceUsage = z
  .object({
    max_rss_mb: z.number().meta({
      description:
        "MiB; largest resident memory of one process, Python's own included, without files in /tmp.",
    }),
    cpu_time_ms: z.int().meta({ description: "CPU time of all processes and threads." }),
    wall_time_ms: z.int().meta({ description: "Time of the submitted code." }),
  })
  .meta({ id: "ResourceUsage" });
export type ResourceUsage = z.infer<typeof ResourceUsage>;

export const Artifact = z
  .object({
    name: z.string().meta({ example: "plot.png" }),
    size_bytes: z.int(),
    sha256: z.string(),
    content_type: z.string().meta({ example: "image/png" }),
  })
  .meta({ id: "Artifact" });
export type Artifact = z.infer<typeof Artifact>;

export const ArtifactList = z
  .object({
    job_id: JobId,
    artifacts: z.array(Artifact).meta({ description: "Files that the code wrote, by name." }),
    input_artifacts: z.array(Artifact).meta({ description: "What was submitted." }),
  })
  .meta({ id: "ArtifactList" });
export type ArtifactList = z.infer<typeof ArtifactList>;

/** Present in a record only with `view=full` or `view=all`. */
const FullView = z.object({
  job_ref: z.string().nullable(),
  container_backend: ContainerBackend.optional().meta({
    description: "How the code got its sandbox; absent for a container of its own.",
  }),
  container_runtime: z.string().nullable().meta({
    description: "Runtime of the container engine that ran the code; null if none did.",
    example: "runsc",
  }),
  artifacts: z.array(Artifact),
  input_artifacts: z.array(Artifact),
  resource_usage: orNull(ResourceUsage),
  code_hash: z.string().meta({ description: "SHA-256 of the code." }),
  input_hash: z.string().meta({ description: "SHA-256 of the input data." }),
  parent_execution_id: z.string().nullable(),
  relationship: orNull(Relationship),
  stdout_truncated: z.boolean(),
  stderr_truncated: z.boolean(),
  idempotency_key: z.string().nullable(),
  stdin: z.string().meta({
    description: "As submitted. Like the fields below, it is left out where it was not given.",
  }),
  args: z.array(z.string()),
  language: z.string(),
  command: z.array(z.string()),
  compile_command: z.array(z.string()),
  compile_timeout: z.int(),
  tools: z.array(Tool),
  tool_timeout: z.int(),
  run_at: Timestamp,
  queue_timeout: z.int(),
  max_attempts: z.int(),
  callback_url: z.string(),
  traceparent: z.string().meta({
    description: "The W3C trace context of the request that made the job.",
    example: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
  }),
});

/** Present in a record only with `view=all`. */
const WholeView = z.object({
  attempt: z.int().meta({
    description:
      "How many times an agent has taken the job. This field and those below it are only in a record with `view=all`.",
  }),
  correlation_id: z
    .string()
    .meta({ description: "Identifies the request that made the job in the service's log." }),
  mode: z.enum(["sync", "async"]).meta({
    id: "SubmissionMode",
    description: "sync: `POST /execute` made it; async: any other request that makes jobs.",
  }),
  timeout: z.int().meta({ description: "Time limit of the code in seconds." }),
  startup_timeout: z.int(),
  requirements: z.array(z.string()),
  attempts: z.array(Attempt).meta({
    description: `Every attempt, the last or running one included; of more than ${limits.lostAttemptsMax} that were lost, the latest.`,
  }),
});

/** Fields of the records of calls. */
const ofCall = {
  session_id: JobId.optional().meta({
    description:
      "The session whose call it is. Other jobs have neither this nor the two fields below.",
  }),
  call: z.int().optional().meta({ description: "Its number among the calls of its session." }),
  context: z.string().optional().meta({ description: "The context in which it runs." }),
  kind: z.literal("files").optional().meta({
    description: "files: it reads or writes files of its session. Left out of calls that run code.",
  }),
};

export const ExecutionRecord = z
  .object({
    execution_id: JobId,
    status: ExecutionStatus,
    job_type: z.string(),
    job_version: z.string().meta({ example: "latest" }),
    created_at: Timestamp,
    started_at: Timestamp.nullable(),
    ended_at: Timestamp.nullable(),
    duration_ms: z.int().nullable(),
    exit_code: z.int().nullable(),
    stdout: z.string(),
    stderr: z.string(),
    output: orNull(JsonObjectSchema),
    error: orNull(ExecutionError),
    timing: orNull(Timing),
    metadata: z
      .record(z.string(), z.string())
      .optional()
      .meta({ description: "As submitted; left out where there is none." }),
    ...results,
    compile: Compilation.optional(),
    warnings: Warnings.optional(),
    batch_id: JobId.optional().meta({ description: "Left out where there is none." }),
    ...ofCall,
    tenant: ShownTenant,
    ...FullView.partial().shape,
    ...WholeView.partial().shape,
  })
  .meta({ id: "ExecutionRecord" });
export type ExecutionRecord = z.infer<typeof ExecutionRecord>;

/** States of the queue, as health and the in-progress result use them. */
export const QueueStatus = z.enum(["pending", "running", "completed"]).meta({
  id: "QueueStatus",
  description: "completed stands for every final status.",
});
export type QueueStatus = z.infer<typeof QueueStatus>;

export const InProgressResult = z
  .object({
    job_id: JobId,
    status: QueueStatus,
    message: z.string(),
    queue_position: z.int().meta({ description: "1 is next; 0 once running." }),
  })
  .meta({ id: "InProgressResult" });
export type InProgressResult = z.infer<typeof InProgressResult>;

export const ExecutionPage = pageOf(ExecutionRecord).meta({ id: "ExecutionPage" });
export type ExecutionPage = z.infer<typeof ExecutionPage>;

/** A record with the fields that the query asked for. */
export const NarrowedRecord = ExecutionRecord.partial()
  .required({ execution_id: true })
  .meta({ id: "NarrowedRecord", description: "A record with the fields of `fields` alone." });

export const ExecutionList = z
  .union([
    ExecutionPage,
    ExecutionPage.extend({ items: z.array(NarrowedRecord) }).meta({ id: "NarrowedPage" }),
  ])
  .meta({ id: "ExecutionList", description: "With `fields`, a page of narrowed records." });

export const ExecutionDeleted = z
  .object({ execution_id: JobId, deleted: z.literal(true) })
  .meta({ id: "ExecutionDeleted" });
