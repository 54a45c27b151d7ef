import { z } from "zod";
import { RequirementText } from "../requirement.ts";
import { ShownTenant } from "./access.ts";
import { ExecutionErrorType, Problem } from "./errors.ts";
import { ExecutionStatus, JobId, Relationship, tools } from "./executions.ts";
import { atMost, JsonObjectSchema, pageOf, Timestamp } from "./fields.ts";
import { InputFiles } from "./files.ts";
import { limits } from "./limits.ts";
import { CallbackUrl } from "./webhooks.ts";

/** What `hasNoNul` asks, as a JSON Schema says it. */
const withoutNul = "^[^\\u0000]*$";
const hasNoNul = (text: string): boolean => !text.includes("\0");

const isPlainText = (text: string): boolean => hasNoNul(text) && text.isWellFormed();

const IdempotencyKey = z
  .string()
  .min(1)
  .max(255)
  .refine(hasNoNul, "must not contain NUL characters")
  .refine((key) => key.isWellFormed(), "must not contain unpaired surrogates")
  .meta({
    pattern: withoutNul,
    description:
      "The same key with the same payload returns the same job, from every request that makes a job. Each tenant has keys of its own, which all its API keys share.",
    example: "order-4711",
  });

export const idempotencyHeader = z
  .string()
  .regex(/^[\x20-\x7e]{1,255}$/, "must be 1 to 255 printable ASCII characters");

/** The same key as a header, for clients that repeat requests without looking into their bodies. */
export const IdempotencyHeader = z.object({
  "Idempotency-Key": idempotencyHeader.optional().meta({
    description: "The same as `idempotency_key` in the body. Two that differ are 400.",
    example: "order-4711",
  }),
});

const Metadata = atMost(
  limits.metadataMax,
  z.record(
    z.string().regex(/^[\w.-]{1,64}$/, "must be 1 to 64 letters, digits, _, . or -"),
    z.string().max(512).refine(isPlainText, "must not contain NUL or unpaired surrogates"),
  ),
).meta({
  maxProperties: limits.metadataMax,
  description:
    "The client's own words about the job. Its record has them, and lists can be filtered by them.",
  example: { order: "4711", team: "ml" },
});

const bytesOf = (text: string): number => new TextEncoder().encode(text).length;
const isWellFormed = (text: string): boolean => text.isWellFormed();

export const PlainText = z
  .string()
  .refine(hasNoNul, "must not contain NUL characters")
  .refine(isWellFormed, "must not contain unpaired surrogates")
  .meta({ pattern: withoutNul });

/** As the kernel counts them. */
const fitTogether = (args: readonly string[]): boolean =>
  args.reduce((sum, text) => sum + bytesOf(text) + 1, 0) <= limits.argsMaxBytes;
const tooLong = `must be at most ${limits.argsMaxBytes} bytes together, one more for each`;

/** What the code gets beside its input; on every request that makes a job. */
const inputs = {
  stdin: z
    .string()
    .refine(isWellFormed, "must not contain unpaired surrogates")
    .refine(
      (text) => bytesOf(text) <= limits.stdinMaxBytes,
      `must be at most ${limits.stdinMaxBytes} bytes`,
    )
    .optional()
    .meta({
      maxLength: limits.stdinMaxBytes,
      description:
        "What the code reads from its standard input, as UTF-8. Without it, the standard input is at its end.",
      example: "tea 3\nmilk 1\n",
    }),
  args: atMost(limits.argsMax, z.array(PlainText).refine(fitTogether, tooLong))
    .optional()
    .meta({
      maxItems: limits.argsMax,
      description: "The arguments of the code: `sys.argv[1:]`.",
      example: ["--verbose", "report.csv"],
    }),
};

/** What the code shows, beside what it prints; on every request that makes a job. */
const results = {
  results: z.boolean().optional().meta({
    description:
      "true: Python code runs as a cell of a notebook. The record's `results` has the value of its last expression, what it passes to `display`, and matplotlib's figures; `await` works outside functions.",
    example: true,
  }),
};

/** When and how often a job may run, and who hears of its end; on every request that makes one. */
const schedule = {
  metadata: Metadata.optional(),
  run_at: z.iso.datetime({ offset: true }).optional().meta({
    description:
      "The job waits until then. It takes a place in the queue meanwhile. A time in the past is now.",
    example: "2026-11-22T06:00:00Z",
  }),
  queue_timeout: z.int().min(1).max(limits.queueTimeoutMaxS).optional().meta({
    description:
      "Seconds that the job may wait for its start, from `run_at` or its submission on. If no agent has taken it by then, it ends as `timeout`.",
    example: 300,
  }),
  max_attempts: z.int().min(1).max(limits.maxAttempts).optional().meta({
    description:
      "1: the code never starts twice, for code with side effects; if its agent is lost, the job fails. Default 2. A try that ended before the code started is not counted, but there are two at most.",
    example: 1,
  }),
  callback_url: CallbackUrl.optional(),
};

/** What runs the code, if not Python. */
const program = {
  language: z
    .string()
    .regex(/^[a-z][a-z0-9+#_-]{0,31}$/, "must be the name of a language, such as bash or cpp")
    .optional()
    .meta({
      description:
        "Language of the code; default: python. The image of the job type must have its compiler and its program.",
      example: "python",
    }),
  command: atMost(limits.argsMax, z.array(PlainText.min(1)).min(1).refine(fitTogether, tooLong))
    .optional()
    .meta({
      maxItems: limits.argsMax,
      description:
        "A program of the image with its arguments, in place of `language`. The code is the file /code/main; `{file}` in an argument becomes that path.",
      example: ["bash", "-e", "{file}"],
    }),
  compile_command: z
    .array(PlainText.min(1).max(limits.compileCommandMaxChars))
    .min(1)
    .max(100)
    .refine(
      (words) => words.join("").length <= limits.compileCommandMaxChars,
      `must be at most ${limits.compileCommandMaxChars} characters together`,
    )
    .optional()
    .meta({
      description:
        "Compiles what `command` runs: a program of the image with its arguments. It runs first, like the compiler of a language, and may write to /tmp and /output.",
      example: ["gcc", "-x", "c", "{file}", "-o", "/tmp/program"],
    }),
  compile_timeout: z
    .int()
    .min(1)
    .max(limits.compileTimeoutMaxS)
    .optional()
    .meta({
      description: `Time limit of the compiler in seconds; its time is not part of \`timeout\`. Default: ${limits.compileTimeoutDefaultS}.`,
      example: 30,
    }),
};

export const ExecuteRequest = z
  .strictObject({
    code: PlainText.min(1, "must not be empty").meta({
      pattern: withoutNul,
      description:
        "Source code: Python, run as /code/main.py, or what `language` or `command` runs from a file in /code.",
      example: 'print("hello")',
    }),
    input_data: JsonObjectSchema.default({}).meta({
      description: "Written to /input/data.json.",
      example: { name: "Ada" },
    }),
    timeout: z.int().min(1).max(limits.timeoutSchemaMaxS).optional().meta({
      description:
        "Time limit of the code in seconds, without start-up. Default: the job type's, else `default_timeout`. At most the configured `max_timeout`.",
      example: 30,
    }),
    startup_timeout: z
      .int()
      .min(limits.startupTimeoutMinS)
      .max(limits.startupTimeoutMaxS)
      .default(limits.startupTimeoutDefaultS)
      .meta({ description: "Seconds for container creation and dependency install." }),
    job_type: z.string().min(1).max(128).default("default"),
    requirements: atMost(limits.requirementsMax, z.array(RequirementText))
      .default([])
      .meta({
        maxItems: limits.requirementsMax,
        description:
          "Packages for this job by name and version (PEP 508), installed before the code runs; wheels only. Honoured only with `allow_runtime_requirements`.",
        example: ["requests>=2.31"],
      }),
    files: InputFiles.optional(),
    idempotency_key: IdempotencyKey.optional(),
    ...program,
    ...inputs,
    ...results,
    ...tools,
    ...schedule,
  })
  .meta({ id: "ExecuteRequest" });
export type ExecuteRequest = z.infer<typeof ExecuteRequest>;

/** The same under the name that clients made from the OpenAPI document use. */
export const AsyncSubmitRequest = ExecuteRequest.extend({}).meta({ id: "AsyncSubmitRequest" });

export const SubmittedJob = z
  .object({
    job_id: JobId,
    status: ExecutionStatus,
    created_at: Timestamp,
    queue_position: z.int().meta({ description: "1 is next; 0 once running." }),
    message: z.string().optional().meta({
      description: "Why a queued job waits, if it waits for more than its turn.",
    }),
    correlation_id: z.string(),
  })
  .meta({ id: "SubmittedJob" });
export type SubmittedJob = z.infer<typeof SubmittedJob>;

const overrides = {
  job_type: ExecuteRequest.shape.job_type.unwrap().optional(),
  timeout: ExecuteRequest.shape.timeout,
  idempotency_key: ExecuteRequest.shape.idempotency_key,
  ...inputs,
  ...results,
  ...tools,
  ...schedule,
};

export const RerunRequest = z.strictObject(overrides).meta({ id: "RerunRequest" });
export type RerunRequest = z.infer<typeof RerunRequest>;

export const ForkRequest = z
  .strictObject({ code: ExecuteRequest.shape.code, ...overrides })
  .meta({ id: "ForkRequest" });
export type ForkRequest = z.infer<typeof ForkRequest>;

export const DerivedJob = SubmittedJob.extend({
  parent_execution_id: JobId,
  relationship: Relationship,
}).meta({ id: "DerivedJob" });
export type DerivedJob = z.infer<typeof DerivedJob>;

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
