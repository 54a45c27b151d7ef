import { z } from "zod";
import { isArtifactName } from "../names.ts";
import { ShownTenant } from "./access.ts";
import { EndReason, ExecutionError } from "./errors.ts";
import { ContainerBackend, JobId } from "./executions.ts";
import { atMost, orNull, pageOf, Timestamp } from "./fields.ts";
import { CallInputFiles } from "./files.ts";
import { limits } from "./limits.ts";
import { ExecuteRequest } from "./submissions.ts";

/** What clients see and send of sessions: sandboxes whose interpreter remembers from call to call. */

export const sessionStatuses = ["queued", "starting", "ready", "ended"] as const;
export const SessionStatus = z.enum(sessionStatuses).meta({
  id: "SessionStatus",
  description:
    "queued: waits for an agent; starting: an agent starts its interpreter; ready: it takes calls; ended: its variables and files are gone.",
});
export type SessionStatus = z.infer<typeof SessionStatus>;

const bytesOf = (env: Record<string, string>): number =>
  new TextEncoder().encode(Object.entries(env).flat().join("")).length;

const Environment = atMost(
  limits.envMax,
  z
    .record(
      z.string().regex(/^[A-Za-z_][A-Za-z0-9_]{0,127}$/, "must be a shell variable name"),
      z.string().refine((text) => !text.includes("\0") && text.isWellFormed(), {
        error: "must not contain NUL or unpaired surrogates",
      }),
    )
    .refine((env) => bytesOf(env) <= limits.envMaxBytes, {
      error: `must be at most ${limits.envMaxBytes} bytes together`,
    }),
).meta({ maxProperties: limits.envMax });

const lifetime = z.int().min(1).meta({
  description:
    "Seconds until the session ends, whatever it does. At most the configured `max_session_lifetime`.",
});
const idleTimeout = z
  .int()
  .min(1)
  .max(limits.idleTimeoutMaxS)
  .nullable()
  .meta({ description: "Seconds without a call after which the session ends; null: never." });

const { shape } = ExecuteRequest;

export const SessionRequest = z
  .strictObject({
    job_type: shape.job_type,
    requirements: shape.requirements,
    startup_timeout: shape.startup_timeout,
    env: Environment.default({}).meta({
      description: "Environment variables of its code. They are forgotten when it ends.",
      example: { LANG: "C.UTF-8" },
    }),
    idle_timeout: idleTimeout.default(600),
    lifetime: lifetime.default(3600),
    metadata: shape.metadata,
    wait: z.number().min(0).max(600).default(30).meta({
      description: "Seconds to wait for the session to be ready. After that the answer is 202.",
    }),
    idempotency_key: shape.idempotency_key,
  })
  .meta({ id: "SessionRequest" });
export type SessionRequest = z.infer<typeof SessionRequest>;

export const SessionPatch = z
  .strictObject({
    lifetime: lifetime.optional().meta({ description: "Seconds from now on until it ends." }),
    idle_timeout: idleTimeout.optional(),
    metadata: shape.metadata,
  })
  .meta({ id: "SessionPatch", description: "Only the fields that are given change." });
export type SessionPatch = z.infer<typeof SessionPatch>;

/** The context that every session has from its start. */
export const defaultContext = "default";

export const Session = z
  .object({
    session_id: JobId,
    status: SessionStatus,
    busy: z.boolean().meta({ description: "A call runs or waits." }),
    message: z.string().optional().meta({ description: "Why a queued session waits." }),
    reason: orNull(EndReason),
    error: orNull(ExecutionError).meta({ description: "The failure that ended it, if one did." }),
    job_type: z.string(),
    job_version: z.string().meta({ example: "latest" }),
    requirements: z.array(z.string()),
    contexts: z.array(z.string()).meta({
      description: "The interpreters that calls can choose.",
      example: [defaultContext],
    }),
    calls: z.int().meta({ description: "Number of calls that it has received." }),
    created_at: Timestamp,
    started_at: Timestamp.nullable().meta({ description: "When an agent took it." }),
    ready_at: Timestamp.nullable(),
    used_at: Timestamp.nullable().meta({ description: "When its last call ended." }),
    ended_at: Timestamp.nullable(),
    expires_at: Timestamp.meta({ description: "When its lifetime is over." }),
    idle_timeout: z.int().nullable(),
    python_version: z.string().nullable().meta({ example: "3.13.2" }),
    container_backend: orNull(ContainerBackend),
    container_runtime: z.string().nullable(),
    metadata: z.record(z.string(), z.string()).optional(),
    tenant: ShownTenant,
  })
  .meta({ id: "Session" });
export type Session = z.infer<typeof Session>;

export const SessionPage = pageOf(Session).meta({ id: "SessionPage" });

const folders = /^\/(output|tmp|input)\//;
const isSessionPath = (path: string): boolean => isArtifactName(path.replace(folders, ""));
const SessionPath = z
  .string()
  .max(limits.artifactNameMaxBytes)
  .refine(isSessionPath, "must be a path below /output, /tmp or /input, without '..'");

const isAnything = ({ code, command, restart, files = [], fetch }: CallFields): boolean =>
  code !== undefined || command !== undefined || restart || files.length > 0 || fetch.length > 0;

const callFields = z.strictObject({
  code: shape.code.optional().meta({
    description:
      "Python, run as a cell of a notebook: variables of earlier calls are there. Its results are what it displays and the value of its last expression.",
    example: "total = sum(prices)\ntotal",
  }),
  command: shape.command.meta({
    description: "A program of the image with its arguments in place of code, run in /output.",
    example: ["ls", "-l"],
  }),
  context: z.string().min(1).max(64).default(defaultContext).meta({
    description: "The interpreter that runs it: `default`, or a `context_id`.",
  }),
  restart: z.boolean().default(false).meta({
    description: "Start the interpreter anew before the code. Files stay.",
  }),
  env: Environment.default({}).meta({ description: "Environment variables for this call." }),
  files: CallInputFiles.optional(),
  fetch: atMost(limits.inputFilesMax, z.array(SessionPath))
    .default([])
    .meta({
      maxItems: limits.inputFilesMax,
      description:
        "Files that come back as artifacts `_fetched/<path>`: paths relative to /output, or below /output, /tmp or /input.",
      example: ["report.csv"],
    }),
  input_data: shape.input_data,
  stdin: shape.stdin,
  tools: shape.tools,
  tool_timeout: shape.tool_timeout,
  timeout: shape.timeout,
  queue_timeout: shape.queue_timeout,
  metadata: shape.metadata,
  callback_url: shape.callback_url,
  idempotency_key: shape.idempotency_key,
});
type CallFields = z.infer<typeof callFields>;

/** A call: what a session is asked to run. */
export const CallRequest = callFields
  .refine(({ code, command }) => code === undefined || command === undefined, {
    path: ["command"],
    error: "cannot be used with code: send one of them",
  })
  .refine(({ code, tools = [] }) => code !== undefined || tools.length === 0, {
    path: ["tools"],
    error: "are for code: send it, too, or leave them out",
  })
  .refine(isAnything, { path: ["code"], error: "is required, or command, restart, files or fetch" })
  .meta({ id: "CallRequest" });
export type CallRequest = z.infer<typeof CallRequest>;

/** A call with nothing to do. */
export const callDefaults: CallRequest = callFields.parse({});

export const RestartRequest = z
  .strictObject({ context: callFields.shape.context })
  .meta({ id: "RestartRequest" });

/** The answer of `POST /sessions/{id}/interrupt`. */
export const Interrupted = z
  .object({
    job_id: orNull(JobId).meta({ description: "The call that is cancelled; null if none ran." }),
  })
  .meta({ id: "Interrupted" });

export const SessionContext = z
  .object({ context_id: z.string().meta({ example: "019aa5f0-7d2e-7b40-8c11-5a9e0f1b2c3d" }) })
  .meta({ id: "SessionContext", description: "An interpreter of a session, with its variables." });

export const SessionContexts = z
  .object({ items: z.array(SessionContext) })
  .meta({ id: "SessionContexts", description: "The first one is `default`." });

export const SessionFile = z
  .object({
    path: z.string().meta({ description: "Relative to /output.", example: "tables/prices.csv" }),
    type: z.enum(["file", "folder", "other"]).meta({ id: "SessionFileType" }),
    size_bytes: z.int(),
    modified_at: Timestamp,
  })
  .meta({ id: "SessionFile" });
export type SessionFile = z.infer<typeof SessionFile>;

export const SessionFiles = z
  .object({ path: z.string(), items: z.array(SessionFile) })
  .meta({ id: "SessionFiles", description: "What a folder has, by name." });
