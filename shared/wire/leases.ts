import { z } from "zod";
import { BuildStep } from "../dockerfile.ts";
import { ExecutionError } from "./errors.ts";
import {
  Compilation,
  ContainerBackend,
  OutputPart,
  ResourceUsage,
  ResultItem,
  TerminalStatus,
  Timing,
  Tool,
  ToolCall,
} from "./executions.ts";
import { InputWay, LeasedFile } from "./files.ts";
import { CircuitBreaker, EngineHealth, GpuCount, PoolKind } from "./health.ts";
import { ImageDigest, ImageTransport, JobTypeName, LeasedJobType } from "./job-types.ts";
import { limits } from "./limits.ts";

/**
 * The agent protocol, `/agent/v1/*`. Every message carries the agent's bearer token. A lease is the
 * right to run one attempt of one execution until the lease expires. Every post names its lease, and is
 * refused once that lease no longer holds.
 */
const Uuid = z.uuid();

/** Names of an interpreter in a session: "default", or the id of a context that a client has made. */
const ContextName = z.string().max(64);

const Environment = z.record(z.string(), z.string());

/**
 * A leased session: a sandbox whose interpreter serves calls until the session ends. It needs one of the
 * agent's `free_sessions`, and no slot.
 */
export const LeasedSession = z.object({
  lease_id: Uuid,
  session_id: Uuid,
  attempt: z.int(),
  correlation_id: z.string(),
  /** Whose session it is, as in LeasedJob. */
  tenant: z.string(),
  job_type: LeasedJobType,
  /** As in LeasedJob. */
  image: z.string(),
  requirements: z.array(z.string()),
  env: Environment,
  startup_timeout_s: z.int(),
  traceparent: z.string().nullish(),
});
export type LeasedSession = z.infer<typeof LeasedSession>;

/**
 * What a leased job has besides if it is a call of a session. It needs no slot. At most one call of a
 * session is leased at a time, to the agent that holds the session.
 */
export const LeasedCall = z.object({
  session_lease_id: Uuid,
  /** Its place among the calls of its session, from 1. */
  number: z.int().min(1),
  context: ContextName,
  /** The contexts that are left beside "default": the interpreters of others end before the call. */
  contexts: z.array(ContextName),
  /** Whether the context's interpreter starts anew before the code; without code, that is all. */
  restart: z.boolean(),
  /** Set in os.environ for this call only. */
  env: Environment,
  /** Paths of files that come back as artifacts `_fetched/…`. */
  fetch: z.array(z.string()),
  /** Files of /output that have changed are left to the next call: it is one of kind `files`. */
  only_fetches: z.boolean().optional(),
});
export type LeasedCall = z.infer<typeof LeasedCall>;

/** A file of a call. `work`: it is written to /output and the code may change it. Absent: /input, as of jobs. */
export const CallFile = LeasedFile.extend({ to: z.literal("work").optional() });
export type CallFile = z.infer<typeof CallFile>;

/** `POST /agent/v1/sessions/{lease_id}/ready`: the interpreter waits for its first call. */
export const SessionReady = z.object({
  job_ref: z.string().nullable(),
  container_runtime: z.string().max(128),
  container_backend: ContainerBackend,
  python_version: z.string().max(32),
});
export type SessionReady = z.infer<typeof SessionReady>;

/** Why an agent ends a session that was ready. The API alone ends sessions by time or by request. */
export const agentsEnds = ["out_of_memory", "engine_lost", "agent_stopped"] as const;

/**
 * `POST /agent/v1/sessions/{lease_id}/ended`: the sandbox is gone. `POST …/release` (ReleaseReport) gives
 * back a session that was never ready. Each gets 409 if the lease no longer holds; then the agent closes
 * the sandbox and forgets the session.
 */
export const SessionEnded = z.object({ reason: z.enum(agentsEnds), error: ExecutionError });
export type SessionEnded = z.infer<typeof SessionEnded>;

const ImageLanguages = z.record(
  z.string().max(1024),
  z.record(z.string().max(32), z.string().max(32)),
);
export type ImageLanguages = z.infer<typeof ImageLanguages>;

/** Work that an agent's operator accepts. The API gives other work to other agents; the agent checks it, too. */
export const Accepted = z.object({
  /** Patterns of names, see names.ts; null for all. */
  job_types: z.array(z.string().max(128)).max(1000).nullable(),
  builds: z.boolean(),
  /** Whether it also builds job types that tenants have made. Absent: no. */
  tenant_builds: z.boolean().optional(),
  /** Absent: no jobs with stdin, args or files. */
  inputs: InputWay.optional(),
  /** What images have of the usual languages: reference of the image, language, version. Absent: not known. */
  languages: ImageLanguages.optional(),
});
export type Accepted = z.infer<typeof Accepted>;

/** An agent process. `id` is new at every start, so a restarted agent does not own its earlier leases. */
export const AgentIdentity = z.object({
  id: Uuid,
  name: z.string().min(1).max(128),
  version: z.string().max(64),
  labels: z.record(z.string(), z.string()),
  accepts: Accepted,
});
export type AgentIdentity = z.infer<typeof AgentIdentity>;

/** An agent's report about itself, sent with each poll and each renewal. */
export const AgentStatus = z.object({
  agent: AgentIdentity,
  slots: z.int().min(0).max(10_000),
  gpus: GpuCount,
  warm: z.int().min(0),
  pool: z.array(PoolKind).max(1000),
  engine: EngineHealth,
  breaker: CircuitBreaker,
  /** Every lease that the agent holds. Listing a lease renews it. */
  leases: z.array(Uuid).max(10_000),
  /** Every lease of a build that the agent holds. Listing a lease renews it. */
  builds: z.array(Uuid).max(100),
  /** Every lease of a session that the agent holds. Listing a lease renews it. */
  sessions: z.array(Uuid).max(1000).optional(),
  /** Images of the last `images_wanted` that the engine has. */
  images: z.array(z.string().max(1024)).max(10_000),
});
export type AgentStatus = z.infer<typeof AgentStatus>;

export const PollRequest = AgentStatus.extend({
  free_slots: z.int().min(0).max(10_000),
  /** Number of builds that it can accept now. Builds use no slot. */
  free_builds: z.int().min(0).max(100),
  /** Number of sessions that it can accept now. Absent: none. */
  free_sessions: z.int().min(0).max(1000).optional(),
  /** Leases whose cancellation the agent already knows; the reply does not repeat them. */
  cancelling: z.array(Uuid).max(10_000),
  /** Leases that the agent already knows to be followed; the reply comes at once for others. */
  watching: z.array(Uuid).max(10_000).optional(),
  /** The agent has just started: the reply names the job types to keep containers ready for. */
  is_new: z.boolean(),
  /** Seconds that the poll may wait for work; the API may answer sooner. */
  wait_s: z.number().min(0).max(60),
});
export type PollRequest = z.infer<typeof PollRequest>;

/** Caps on what one execution may send back, in bytes. */
const OutputCaps = z.object({ stream_bytes: z.int(), artifact_bytes: z.int() });
type OutputCaps = z.infer<typeof OutputCaps>;

/** A program that runs in place of Python, after its compiler if there is one. */
const LeasedProgram = z.object({
  /** Name of the file in /code that gets the code. */
  file: z.string().regex(/^[A-Za-z0-9_][A-Za-z0-9_.-]*$/),
  compile: z.array(z.string()),
  compile_timeout_s: z.int(),
  run: z.array(z.string()).min(1),
});

/** A leased execution: everything that an agent needs to run it. */
export const LeasedJob = z.object({
  lease_id: Uuid,
  execution_id: Uuid,
  attempt: z.int(),
  correlation_id: z.string(),
  /** Whose job it is. What an agent keeps for jobs of one tenant, those of others never meet. */
  tenant: z.string(),
  job_type: LeasedJobType,
  /** Digest of the built image; if the job type is not built, name of the base image. */
  image: z.string(),
  code: z.string(),
  /** Absent: the code is Python. */
  program: LeasedProgram.optional(),
  /** Whether the code runs as a cell, so that what it shows becomes items. Absent: no. */
  results: z.boolean().optional(),
  /** Functions of the caller, and how long their calls may wait together. Absent if there are none. */
  tools: z.object({ functions: z.array(Tool), timeout_s: z.int() }).optional(),
  /** The request's `input_data` as JSON text. */
  input_json: z.string(),
  requirements: z.array(z.string()),
  /** What the code reads from its standard input; absent if nothing. */
  stdin: z.string().optional(),
  /** Absent if there are none. */
  args: z.array(z.string()).optional(),
  /** Absent if there are none. */
  files: z.array(CallFile).optional(),
  /** Set if this is a call of a session. */
  call: LeasedCall.optional(),
  timeout_s: z.int(),
  startup_timeout_s: z.int(),
  caps: OutputCaps,
  /** W3C trace context of the request that made the job. */
  traceparent: z.string().nullish(),
  /** Whether somebody follows the job: then its output is posted as it comes. */
  watch: z.boolean().optional(),
});
export type LeasedJob = z.infer<typeof LeasedJob>;

/** Timings that the API sets for its agents, in seconds. */
export const Intervals = z.object({
  poll_wait_s: z.number(),
  lease_ttl_s: z.number(),
  renew_every_s: z.number(),
});
export type Intervals = z.infer<typeof Intervals>;

/** Timings that the API sets for its agents, from its configuration. */
export function intervalsOf({
  poll_wait_s,
  lease_ttl_s,
  liveness_s,
}: Pick<Intervals, "poll_wait_s" | "lease_ttl_s"> & { readonly liveness_s: number }): Intervals {
  return { poll_wait_s, lease_ttl_s, renew_every_s: liveness_s / renewalsPerLiveness };
}

/** With four renewals per `liveness_s`, two may fail in a row and the third may be slow. */
const renewalsPerLiveness = 4;

export const RenewReply = z.object({
  /** Leases whose execution should be cancelled. */
  cancel: z.array(Uuid),
  /** Listed leases that the agent no longer holds: it drops their work. */
  lost: z.array(Uuid),
  /** Images that jobs may need: the agent reports which of them its engine has. */
  images_wanted: z.array(z.string()),
  intervals: Intervals,
  /** Listed leases whose job somebody follows. */
  watch: z.array(Uuid).optional(),
});
export type RenewReply = z.infer<typeof RenewReply>;

/** A leased build of a job type's image. */
export const LeasedBuild = z.object({
  lease_id: Uuid,
  attempt: z.int(),
  correlation_id: z.string(),
  job_type: JobTypeName,
  /** Set if a tenant has made the job type. */
  tenant: z.string().optional(),
  base_image: z.string(),
  steps: z.array(BuildStep),
  /** Whether steps run even if this host has their result from an earlier build. */
  fresh: z.boolean(),
  /** Name of the image, and the tags it gets. */
  repository: z.string(),
  tags: z.array(z.string()).min(1),
  timeout_s: z.int(),
  /** How the image reaches other hosts. */
  share: ImageTransport,
  /** Largest image that the artifact store accepts, in unpacked bytes. */
  share_max_bytes: z.int().min(0),
});
export type LeasedBuild = z.infer<typeof LeasedBuild>;

/** A job type and the image that its jobs would run on now, in the form of LeasedJob. */
export const ReadyKind = LeasedJob.pick({ job_type: true, image: true });
export type ReadyKind = z.infer<typeof ReadyKind>;

export const PollReply = RenewReply.extend({
  jobs: z.array(LeasedJob),
  builds: z.array(LeasedBuild),
  sessions: z.array(LeasedSession).optional(),
  /** For a new agent only: the default job type and recently used ones, if the agent may run them. */
  keep_ready: z.array(ReadyKind),
  /** Whether an operator has asked the host to replace its token. */
  rotate: z.boolean().optional(),
});
export type PollReply = z.infer<typeof PollReply>;

/** Says that the code has started. */
export const StartedReport = z.object({ job_ref: z.string().nullable() });
export type StartedReport = z.infer<typeof StartedReport>;

/** Answer to posts of a running job: whether somebody follows it. */
export const WatchReply = z.object({ watch: z.boolean().optional() });
export type WatchReply = z.infer<typeof WatchReply>;

export const ResultReport = z
  .object({
    status: TerminalStatus,
    exit_code: z.int().nullable(),
    error: ExecutionError.nullable(),
    stdout_base64: z.base64(),
    stderr_base64: z.base64(),
    stdout_truncated: z.boolean(),
    stderr_truncated: z.boolean(),
    /** Text of /output/result.json, a JSON object. `recordResult` checks it, because a schema cannot pause. */
    output_json: z.string().nullable(),
    timing: Timing,
    resource_usage: ResourceUsage.nullable(),
    job_ref: z.string().nullable(),
    /** Name of the engine's runtime that ran the code; null if the code did not run. */
    container_runtime: z.string().max(128).nullable(),
    container_backend: ContainerBackend.nullable().optional(),
    /** Those that no post has brought; absent if there are none. */
    items: z.array(ResultItem).min(1).max(limits.resultItemsMax).optional(),
    results_truncated: z.boolean().optional(),
    /** Absent if no compiler ran. */
    compile: Compilation.optional(),
    /** Absent if there are none. */
    warnings: z.array(z.string().max(20_000)).max(10).optional(),
  })
  .refine((r) => (r.status === "succeeded") === (r.error === null), {
    path: ["error"],
    message: "must be null for a succeeded execution, and set for every other",
  })
  .refine((r) => r.status !== "timeout" || r.exit_code === null, {
    path: ["exit_code"],
    message: "must be null for a timeout",
  });
export type ResultReport = z.infer<typeof ResultReport>;

/** Answer to a result: a job for the slot that is free again, if the agent asked for one. */
export const ResultReply = z.object({ jobs: z.array(LeasedJob) });
export type ResultReply = z.infer<typeof ResultReply>;

/**
 * Request header of a result; the value "1" asks for the next job. It is not part of the report, so
 * a repeated post has the same body.
 */
export const takeHeader = "x-airlock-take";

/** A chunk of a build's log, empty if only the step is new. */
export const BuildLogChunk = OutputPart.omit({ stream: true }).extend({
  data_base64: z.base64(),
  /** The step that runs, from 1; absent before the first. */
  step: z.int().min(1).optional(),
});
export type BuildLogChunk = z.infer<typeof BuildLogChunk>;

/** How a build ended. */
export const BuildReport = z.discriminatedUnion("status", [
  z.object({
    status: z.literal("built"),
    digest: ImageDigest,
    python_version: z.string().max(32),
    /** Digest that a registry gave the image's manifest; null if the image was not pushed. */
    manifest_digest: ImageDigest.nullable(),
  }),
  z.object({ status: z.literal("failed"), error: ExecutionError }),
]);
export type BuildReport = z.infer<typeof BuildReport>;

/** The agent gives a lease back: the job or the build is queued again, while it has attempts left. */
export const ReleaseReport = z.object({
  error: ExecutionError,
  /** The agent is stopping, and the code had not begun: this lease does not count as an attempt. */
  agent_stops: z.boolean().optional(),
});
export type ReleaseReport = z.infer<typeof ReleaseReport>;

/** Says that an agent process has ended, which frees its leases. */
export const LeaveRequest = z.object({
  agent_id: Uuid,
  /** True if it died and another agent of its host reports that; false if it ended in order and reports it itself. */
  crashed: z.boolean(),
});
export type LeaveRequest = z.infer<typeof LeaveRequest>;

/** Request headers of an artifact upload, checked while the body streams in. */
export const artifactHeaders = { sha256: "x-airlock-sha256", size: "content-length" } as const;

/** What the code showed, or a call of a function of the caller. */
export const RunItem = z.union([ResultItem, ToolCall.omit({ answer: true })]);
export type RunItem = z.infer<typeof RunItem>;

/** Items in the order of their numbers. */
export const ItemsReport = z.object({ items: z.array(RunItem).min(1).max(limits.runItemsMax) });
export type ItemsReport = z.infer<typeof ItemsReport>;

/** Which answers an agent asks for: those after the first so many. */
export const AnswersQuery = z.object({
  after: z.coerce.number().int().min(0),
  /** Seconds that the request may wait for one. */
  wait_s: z.coerce.number().min(0).max(60),
});

/**
 * Answers to calls, in the order in which clients gave them.
 * `result_json` is the text that the client sent.
 */
export const AnswersReply = z.object({
  answers: z.array(
    z.object({
      number: z.int(),
      result_json: z.string().optional(),
      error: z.string().optional(),
    }),
  ),
});
export type AnswersReply = z.infer<typeof AnswersReply>;

/**
 * Version of the agents' protocol. Agents and API must use the same version. A change that either side
 * could misread needs a new version; a new optional field does not.
 */
export const protocolVersion = "4";

/** Header of each request of an agent and of each answer to it. */
export const protocolHeader = "x-airlock-protocol";

/**
 * Why API and agent cannot work together; undefined if they can.
 *
 * @param told The other side's header; undefined in the answer of a proxy.
 */
export function protocolMismatch(
  told: string | undefined,
  speaker: "API" | "agent",
): string | undefined {
  if (told === undefined || told === protocolVersion) return undefined;
  const other = speaker === "API" ? "agent" : "API";
  return `The ${speaker} speaks version ${told.slice(0, 20)} of the agents' protocol, the ${other} version ${protocolVersion}: run the same version of Airlock on both.`;
}
