import { z } from "zod";
import { ExecutionError } from "./errors.ts";
import { ResourceUsage, TerminalStatus, Timing } from "./execution.ts";
import { CircuitBreaker, EngineHealth, GpuCount, PoolKind } from "./health.ts";
import { ImageDigest } from "./build.ts";
import { ImageTransport } from "./image.ts";
import { JobType, JobTypeName } from "./job-type.ts";
import { isJsonObject, parseJson } from "../json.ts";
import { limits } from "./limits.ts";

/**
 * The agent protocol, `/agent/v1/*`. Every message carries the agent's own bearer token. A lease is
 * the right to run one attempt of one execution until it expires; its id fences every post.
 */
const Uuid = z.uuid();

/** What an agent's operator accepts, so that other work goes to other agents; the agent holds it too. */
export const Accepted = z.object({
  /** Patterns of names, see pattern.ts; null for all. */
  job_types: z.array(z.string().max(128)).max(1000).nullable(),
  builds: z.boolean(),
});
export type Accepted = z.infer<typeof Accepted>;

/** An agent process. `id` is fresh at every start, so that a restarted agent is another holder. */
export const AgentIdentity = z.object({
  id: Uuid,
  name: z.string().min(1).max(128),
  version: z.string().max(64),
  labels: z.record(z.string(), z.string()),
  accepts: Accepted,
});
export type AgentIdentity = z.infer<typeof AgentIdentity>;

/** What an agent tells of itself with each poll and each renewal. */
export const AgentStatus = z.object({
  agent: AgentIdentity,
  slots: z.int().min(0).max(10_000),
  gpus: GpuCount,
  warm: z.int().min(0),
  pool: z.array(PoolKind).max(1000),
  engine: EngineHealth,
  breaker: CircuitBreaker,
  /** Every lease the agent holds; listing one renews it. */
  leases: z.array(Uuid).max(10_000),
  /** The same for leases of builds. */
  builds: z.array(Uuid).max(100),
  /** Of the last `images_wanted`, those that the engine has. */
  images: z.array(z.string().max(1024)).max(10_000),
});
export type AgentStatus = z.infer<typeof AgentStatus>;

export const PollRequest = AgentStatus.extend({
  free_slots: z.int().min(0).max(10_000),
  /** Builds it can take on; they use no slot. */
  free_builds: z.int().min(0).max(100),
  /** Leases held whose cancellation the agent already knows of: not told again. */
  cancelling: z.array(Uuid).max(10_000),
  /** The agent has heard of no job types yet: the reply tells which to keep containers ready for. */
  is_new: z.boolean(),
  /** Seconds the poll may wait for work; the server may answer sooner. */
  wait_s: z.number().min(0).max(60),
});
export type PollRequest = z.infer<typeof PollRequest>;

/** Caps on what one execution may send back, in bytes. */
export const OutputCaps = z.object({ stream_bytes: z.int(), artifact_bytes: z.int() });
export type OutputCaps = z.infer<typeof OutputCaps>;

/** What an agent is told of a job type. */
export const LeasedJobType = z.object(JobType.omit({ priority: true }).shape);
export type LeasedJobType = z.infer<typeof LeasedJobType>;

/** A leased execution: all that an agent needs to run it. */
export const LeasedJob = z.object({
  lease_id: Uuid,
  execution_id: Uuid,
  attempt: z.int(),
  correlation_id: z.string(),
  /** Stands for the API key that submitted it: a container is reused for jobs of the same one only. */
  key_id: z.string().max(64).nullable(),
  job_type: LeasedJobType,
  /** The digest of the built image; the base image where the job type is not built. */
  image: z.string(),
  code: z.string(),
  /** The request's `input_data` as JSON text. */
  input_json: z.string(),
  requirements: z.array(z.string()),
  timeout_s: z.int(),
  startup_timeout_s: z.int(),
  caps: OutputCaps,
});
export type LeasedJob = z.infer<typeof LeasedJob>;

/** Timings that the server sets for its agents, in seconds. */
export const Intervals = z.object({
  poll_wait_s: z.number(),
  lease_ttl_s: z.number(),
  renew_every_s: z.number(),
});
export type Intervals = z.infer<typeof Intervals>;

export const RenewReply = z.object({
  /** Leases whose execution should be cancelled. */
  cancel: z.array(Uuid),
  /** Listed leases that are no longer the agent's: drop the work. */
  lost: z.array(Uuid),
  /** Images that jobs may need: the agent tells which of them its engine has. */
  images_wanted: z.array(z.string()),
  intervals: Intervals,
});
export type RenewReply = z.infer<typeof RenewReply>;

/** A leased build of a job type's image. */
export const LeasedBuild = z.object({
  lease_id: Uuid,
  attempt: z.int(),
  correlation_id: z.string(),
  job_type: JobTypeName,
  base_image: z.string(),
  requirements: z.array(z.string()),
  /** Name of the image, and the tags it gets. */
  repository: z.string(),
  tags: z.array(z.string()).min(1),
  timeout_s: z.int(),
  /** How it gets to other hosts. */
  share: ImageTransport,
  /** Bytes of the unpacked image up to which the artifact store takes it. */
  share_max_bytes: z.int().min(0),
});
export type LeasedBuild = z.infer<typeof LeasedBuild>;

/** A job type and the image that its jobs would run on now, as in LeasedJob. */
export const ReadyKind = LeasedJob.pick({ job_type: true, image: true });
export type ReadyKind = z.infer<typeof ReadyKind>;

export const PollReply = RenewReply.extend({
  jobs: z.array(LeasedJob),
  builds: z.array(LeasedBuild),
  /** To a new agent: the default job type, and those in use lately, that it may be given. */
  keep_ready: z.array(ReadyKind),
});
export type PollReply = z.infer<typeof PollReply>;

/** The code has begun to run. */
export const StartedReport = z.object({ job_ref: z.string().nullable() });
export type StartedReport = z.infer<typeof StartedReport>;

/** A piece of a running execution's output, kept in case its agent dies before the result. */
export const LogChunk = z.object({
  stream: z.enum(["stdout", "stderr"]),
  /** Bytes of this stream before the chunk. */
  offset: z.int().min(0),
  data_base64: z.base64().min(1),
});
export type LogChunk = z.infer<typeof LogChunk>;

function isObjectText(text: string): boolean {
  try {
    return isJsonObject(parseJson(text, limits.jsonDepthMax, limits.resultJsonMaxValues));
  } catch {
    return false;
  }
}

export const ResultReport = z
  .object({
    status: TerminalStatus,
    exit_code: z.int().nullable(),
    error: ExecutionError.nullable(),
    stdout_base64: z.base64(),
    stderr_base64: z.base64(),
    stdout_truncated: z.boolean(),
    stderr_truncated: z.boolean(),
    /** Text of /output/result.json. */
    output_json: z.string().refine(isObjectText, "must be the text of a JSON object").nullable(),
    timing: Timing,
    resource_usage: ResourceUsage.nullable(),
    job_ref: z.string().nullable(),
    /** Name of the engine's runtime that ran the code; null where none did. */
    container_runtime: z.string().max(128).nullable(),
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

/** Answer to a result: the job for the slot that has become free, where the agent asked for one. */
export const ResultReply = z.object({ jobs: z.array(LeasedJob) });
export type ResultReply = z.infer<typeof ResultReply>;

/**
 * Request header with which a result asks for the next job, with the value "1". Not part of the
 * report, so that a repeated post is still the same.
 */
export const takeHeader = "x-airlock-take";

/** A piece of a build's log. */
export const BuildLogChunk = LogChunk.omit({ stream: true });
export type BuildLogChunk = z.infer<typeof BuildLogChunk>;

/** How a build ended. */
export const BuildReport = z.discriminatedUnion("status", [
  z.object({
    status: z.literal("built"),
    digest: ImageDigest,
    python_version: z.string().max(32),
    /** What a registry gave its manifest; null where it was not pushed. */
    manifest_digest: ImageDigest.nullable(),
  }),
  z.object({ status: z.literal("failed"), error: ExecutionError }),
]);
export type BuildReport = z.infer<typeof BuildReport>;

/** A transient engine failure before the code began, or while building: it may be leased again. */
export const ReleaseReport = z.object({ error: ExecutionError });
export type ReleaseReport = z.infer<typeof ReleaseReport>;

/** An agent process is gone for good, and its leases are free. */
export const LeaveRequest = z.object({
  agent_id: Uuid,
  /** It died, as another agent of its host has found; else it says so itself, and its work is done. */
  crashed: z.boolean(),
});
export type LeaveRequest = z.infer<typeof LeaveRequest>;

/** Request headers of an artifact upload, checked while the body streams in. */
export const artifactHeaders = { sha256: "x-airlock-sha256", size: "content-length" } as const;
