import { z } from "zod";
import { isJsonObject } from "../json.ts";
import { isPythonName } from "../names.ts";
import { ShownTenant } from "./access.ts";
import { ExecutionError } from "./errors.ts";
import { atMost, JsonObjectSchema, orNull, pageOf, Timestamp } from "./fields.ts";
import { limits } from "./limits.ts";

/** How a lease can end without a result. */
const lostOutcomes = ["released", "agent_stopped", "agent_crashed", "lease_expired"] as const;
export type LostOutcome = (typeof lostOutcomes)[number];

const AttemptOutcome = z.enum(["result", ...lostOutcomes]).meta({
  id: "AttemptOutcome",
  description:
    "result: the agent reported how the job ended; released: it gave the job back, and `error` says why; agent_stopped: it stopped in order; agent_crashed: its process died, as the next agent on its host found; lease_expired: the service had not heard of it for `lease_ttl_s`.",
});

export const Attempt = z
  .object({
    attempt: z.int().meta({
      description:
        "Which try it was. The next one has the same number if an agent that stopped had not begun.",
    }),
    agent_id: z.string().meta({ description: "Which start of an agent had the job." }),
    agent: z.string().nullable().meta({
      description: "Name of the agent; null if the service no longer knows it.",
      example: "host-1",
    }),
    claimed_at: Timestamp.meta({ description: "When the agent got the job." }),
    code_started_at: Timestamp.nullable().meta({
      description:
        "When the agent said that the code had begun. Agents do not say it of code that ends within 50 ms.",
    }),
    ended_at: Timestamp.nullable(),
    outcome: orNull(AttemptOutcome).meta({
      description: "Null while it runs, or if a version that kept no attempts ended it.",
    }),
    error: orNull(ExecutionError),
  })
  .meta({ id: "Attempt", description: "One try of a job by one agent." });
export type Attempt = z.infer<typeof Attempt>;

/** A MIME type without parameters, or with a few. */
const MimeType = z.string().regex(/^[\w.+-]{1,64}\/[\w.+;= -]{1,64}$/);
/** Forms of one value by MIME type. */
export const MimeBundle = atMost(32, z.record(MimeType, z.string()));

export const ResultItem = z
  .object({
    number: z.int().min(1).max(limits.runItemsMax).meta({
      description: "Results and calls of `tools` are numbered together, in their order.",
    }),
    main: z.boolean().meta({ description: "It is the value of the code's last expression." }),
    data: MimeBundle.meta({
      description:
        "Forms of the value by MIME type, as text; pictures and other bytes in base64. `text/plain` is its repr.",
      example: { "text/plain": "42" },
    }),
    stdout_at: z.int().min(0).meta({ description: "Bytes of stdout that come before it." }),
    stderr_at: z.int().min(0),
  })
  .meta({ id: "ResultItem", description: "A value that the code showed." });
export type ResultItem = z.infer<typeof ResultItem>;

/** Fields of records; only of jobs that asked for results. */
const results = {
  results: z.array(ResultItem).optional().meta({
    description:
      "With `results: true` in the request, what the code showed: values passed to `display`, figures, and the value of its last expression. Left out otherwise.",
  }),
  results_truncated: z.boolean().optional().meta({
    description: "true if something was left out of `results`; otherwise the field is left out.",
  }),
};

const ToolName = z
  .string()
  .regex(/^(?!__)[A-Za-z_][A-Za-z0-9_]{0,63}$/, "must be an identifier of at most 64 characters")
  .refine((name) => !isPythonName(name), "must not be a keyword or a built-in name of Python");

const hasNames = (value: unknown): boolean =>
  value === undefined || (Array.isArray(value) && value.every((name) => typeof name === "string"));
const hasProperties = ({ properties, required }: Record<string, unknown>): boolean =>
  (properties === undefined || isJsonObject(properties)) && hasNames(required);

export const Tool = z
  .strictObject({
    name: ToolName.meta({ description: "Its name in the code.", example: "get_price" }),
    description: z
      .string()
      .refine((text) => text.isWellFormed(), "must not contain unpaired surrogates")
      .optional()
      .meta({ description: "Its docstring.", example: "The price of an item, in cents." }),
    parameters: JsonObjectSchema.refine(
      hasProperties,
      "must have an object as properties and a list of names as required, if it has them",
    )
      .optional()
      .meta({
        description:
          "A JSON Schema of its arguments. The parameters of the function are the names in `properties`; those in `required` have no default. The service does not check values.",
      }),
    awaitable: z
      .boolean()
      .optional()
      .meta({ description: "true: it is a coroutine function, which the code awaits." }),
  })
  .meta({ id: "Tool", description: "A function of the caller that the code can call." });
export type Tool = z.infer<typeof Tool>;

const bytesOf = (value: unknown): number => new TextEncoder().encode(JSON.stringify(value)).length;

/** On every request that makes a job. */
export const tools = {
  tools: atMost(
    limits.toolsMax,
    z
      .array(Tool)
      .superRefine((all, context) => {
        for (const [n, { name }] of all.entries()) {
          if (all.findIndex((one) => one.name === name) === n) continue;
          context.addIssue({ code: "custom", path: [n, "name"], message: "is used twice" });
        }
      })
      .refine(
        (all) => bytesOf(all) <= limits.toolsMaxBytes,
        `must be at most ${limits.toolsMaxBytes} bytes of JSON`,
      ),
  )
    .optional()
    .meta({
      maxItems: limits.toolsMax,
      description:
        "Functions that the code can call by name. Each call is an event `tool_call`; the function returns what `POST /jobs/{id}/tool-calls/{number}` answers. The code runs as with `results: true`, and with `max_attempts` 1.",
    }),
  tool_timeout: z
    .int()
    .min(1)
    .max(limits.timeoutSchemaMaxS)
    .optional()
    .meta({
      description: `Seconds that calls of \`tools\` may wait for their answers, all together; they are not part of \`timeout\`. Default: ${limits.toolTimeoutDefaultS}. At most the configured \`max_timeout\`.`,
      example: 60,
    }),
};

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
const NarrowedRecord = ExecutionRecord.partial()
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

export const streamNames = ["stdout", "stderr"] as const;
export type StreamName = (typeof streamNames)[number];

/** Consecutive bytes of one stream of a running execution. */
export const OutputPart = z.object({
  stream: z.enum(streamNames),
  /** Number of bytes of this stream before the part. */
  offset: z.int().min(0),
  data_base64: z.base64().min(1),
});
export type OutputPart = z.infer<typeof OutputPart>;

/** Parts of both streams, in the order in which the code wrote them; each continues its stream. */
const OutputParts = z
  .array(OutputPart)
  .min(1)
  .max(1000)
  .superRefine((parts, context) => {
    const ends = new Map<StreamName, number>();
    for (const [i, { stream, offset, data_base64 }] of parts.entries()) {
      const end = ends.get(stream);
      if (end !== undefined && offset !== end) {
        const message = `must be ${end}, where the part of ${stream} before it ends`;
        context.addIssue({ code: "custom", path: [i, "offset"], message });
      }
      ends.set(stream, offset + base64Bytes(data_base64));
    }
  });

/** New output of a running execution, stored so that clients see it and the loss of its agent leaves it. */
export const OutputReport = z.object({ parts: OutputParts });
export type OutputReport = z.infer<typeof OutputReport>;

/** Number of bytes that a base64 text stands for. */
function base64Bytes(text: string): number {
  const padding = text.endsWith("==") ? 2 : text.endsWith("=") ? 1 : 0;
  return (text.length / 4) * 3 - padding;
}

/** Output is bounded by a cap. This many bytes from the start are sent at once, the rest when the code has ended. */
export function liveBytes(cap: number): number {
  return cap - Math.min(Math.floor(cap / 2), 1024 * 1024);
}

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

/** The events of a job: GET /jobs/{id}/events. Clients ignore events that they do not know. */

const common = z.object({
  job_id: JobId,
  attempt: z.int().meta({ description: "Which try of the job; 0 until the first has begun." }),
  at: Timestamp,
});
const ofStream = common.extend({ stream: z.enum(streamNames) });

const QueuedEvent = common.extend({
  status: z.literal("queued"),
  reason: z.string().meta({ description: "Why the job waits." }),
  position: z.int().meta({ description: "Its place in the queue; 1 is next." }),
});
const RunningEvent = common.extend({
  status: z.literal("running"),
  agent: z.string().nullable().meta({ description: "Name of the agent that runs it." }),
});
const TextEvent = common.extend({ text: z.string() });
const HeldEvent = ofStream.extend({
  offset: z.int().meta({ description: "Bytes of the stream that are sent while the code runs." }),
});

const DisplayEvent = common.extend(ResultItem.shape);
/** Only while the call waits for its answer: who gets it should answer it. */
const ToolCallEvent = common.extend(ToolCall.shape);

/** The record without its streams and results. A large output is left out; `output_url` leads to it. */
const EndEvent = z.object({
  ...common.shape,
  ...ExecutionRecord.omit({ stdout: true, stderr: true, results: true }).shape,
  output_url: z.string().optional(),
});

/** Data of each event, by its name. The name `progress` is reserved. */
export const eventData = {
  status: z.union([QueuedEvent, RunningEvent]),
  stdout: TextEvent,
  stderr: TextEvent,
  display: DisplayEvent,
  tool_call: ToolCallEvent,
  held: HeldEvent,
  truncated: ofStream,
  retry: common,
  end: EndEvent,
} as const;
type EventName = keyof typeof eventData;

export type EventData<E extends EventName> = z.infer<(typeof eventData)[E]>;

/** An event; `status` of a queued job has no id. */
export type JobEvent = {
  [E in EventName]: { event: E; id?: string; data: EventData<E> };
}[EventName];

/** Largest output, as bytes of JSON, that the `end` event brings. */
export const endOutputMaxBytes = 256 * 1024;
