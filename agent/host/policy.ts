import type { Logger } from "@logtape/logtape";
import { parseBytes } from "../../shared/bytes.ts";
import type { Config } from "../../shared/config/config.ts";
import { matchesPattern } from "../../shared/names.ts";
import type { ExecutionErrorType } from "../../shared/wire/errors.ts";
import type { EngineHealth } from "../../shared/wire/health.ts";
import type { LeasedBuild, LeasedJob } from "../../shared/wire/leases.ts";

/**
 * What the operator allows the agent to do; the API cannot override it. A key that is not set
 * limits nothing.
 */
export type Policy = Pick<
  Config,
  | "agent_job_types"
  | "agent_images"
  | "agent_networks"
  | "agent_runtimes"
  | "agent_max_memory"
  | "agent_max_cpus"
  | "agent_max_gpus"
  | "agent_max_timeout"
  | "agent_max_stdout_bytes"
  | "agent_max_artifact_bytes"
  | "agent_builds"
  | "max_built_bytes"
> &
  Partial<Pick<Config, "agent_tenant_builds">>;

/** What a job or a build asks for. */
export type Asked = {
  readonly jobType: string;
  /** Each image with all its names; one of them has to be accepted. */
  readonly images: readonly (readonly string[])[];
  readonly networks: readonly string[];
  readonly runtime: string;
  readonly isBuild?: boolean;
  /** Whether a tenant has made the job type of the build. */
  readonly isOfTenant?: boolean;
  /** In the form of job types, such as "512m". */
  readonly memory?: string;
  readonly cpus?: number;
  readonly gpus?: number;
  readonly timeoutS?: number;
  /** Bytes kept of each output stream. */
  readonly stdoutBytes?: number;
  readonly artifactBytes?: number;
};

/** What a build may use of its host. */
export interface BuildLimits {
  readonly memoryBytes: number;
  readonly cpus: number;
  /** Processes and threads at a time. */
  readonly pids: number;
  /** Size of the container's own files, if the engine can limit it. */
  readonly diskBytes: number;
  /** Size of all images of one tenant's job types. */
  readonly tenantBytes: number;
}

const GiB = 1024 ** 3;

/**
 * The limits of a build: the policy's, else defaults, because a build does not ask for any itself.
 */
export function buildLimits(policy: Policy): BuildLimits {
  const { agent_max_memory, agent_max_cpus, max_built_bytes } = policy;
  return {
    memoryBytes: agent_max_memory === undefined ? 2 * GiB : parseBytes(agent_max_memory),
    cpus: agent_max_cpus ?? 1,
    pids: 1024,
    diskBytes: max_built_bytes,
    tenantBytes: 20 * GiB,
  };
}

/** Most bytes of memory of one job; null for no bound. */
export function mostMemory({ agent_max_memory: most }: Policy): number | null {
  return most === undefined ? null : parseBytes(most);
}

/** Why the policy forbids the request; undefined if it allows it. */
export function explainRefusal(policy: Policy, asked: Asked): string | undefined {
  const { isBuild = false, memory = "0", cpus = 0, gpus = 0, timeoutS = 0 } = asked;
  const { stdoutBytes = 0, artifactBytes = 0 } = asked;
  if (isBuild && !policy.agent_builds) return "agent_builds is false";
  if (asked.isOfTenant && !policy.agent_tenant_builds) return "agent_tenant_builds is false";
  const refusals = [
    leftOut("agent_job_types", policy.agent_job_types, [asked.jobType]),
    ...asked.images.map((names) => leftOut("agent_images", policy.agent_images, names)),
    ...asked.networks.map((network) => leftOut("agent_networks", policy.agent_networks, [network])),
    leftOut("agent_runtimes", policy.agent_runtimes, [asked.runtime]),
    above("agent_max_memory", policy.agent_max_memory, memory, parseBytes),
    above("agent_max_cpus", policy.agent_max_cpus, cpus),
    above("agent_max_gpus", policy.agent_max_gpus, gpus),
    above("agent_max_timeout", policy.agent_max_timeout, timeoutS),
    above("agent_max_stdout_bytes", policy.agent_max_stdout_bytes, stdoutBytes),
    above("agent_max_artifact_bytes", policy.agent_max_artifact_bytes, artifactBytes),
  ];
  return refusals.find((refusal) => refusal !== undefined);
}

function leftOut(
  key: string,
  accepted: readonly string[] | undefined,
  names: readonly string[],
): string | undefined {
  if (
    !accepted ||
    names.some((name) => accepted.some((pattern) => matchesPattern(pattern, name)))
  ) {
    return undefined;
  }
  return `${key} leaves out ${names.join(", ") || "an image that is not on the host"}`;
}

function above<T>(
  key: string,
  most: T | undefined,
  asked: T,
  size: (value: T) => number = Number,
): string | undefined {
  if (most === undefined || size(asked) <= size(most)) return undefined;
  return `${key} is ${String(most)}, less than ${String(asked)}`;
}

export type Admission = ReturnType<typeof createAdmission>;

/** A job, or the known part of a job that may come. */
type JobAsked = Pick<LeasedJob, "job_type" | "image"> &
  Partial<Pick<LeasedJob, "timeout_s" | "caps">>;

type AdmissionDeps = {
  readonly policy: Policy;
  readonly images: {
    /** All names of the image that a reference stands for. */
    readonly namesOf: (reference: string, signal: AbortSignal) => Promise<readonly string[]>;
  };
  readonly engine: { readonly health: () => Pick<EngineHealth, "runtimes"> };
};

/** Checks what the API asks for against the operator's policy. Pulls and starts nothing. */
export function createAdmission({ policy, images, engine }: AdmissionDeps) {
  const runtimeName = (runtime: string | null): string =>
    runtime ?? engine.health().runtimes[0] ?? "a runtime that is not known";

  /** @throws JobRefusal; EngineError; the signal's reason. */
  async function admitJob(job: JobAsked, runtime: string | null, signal: AbortSignal) {
    const { job_type, image, timeout_s = 0, caps } = job;
    const refusal = explainRefusal(policy, {
      jobType: job_type.name,
      images: policy.agent_images ? [await images.namesOf(image, signal)] : [],
      networks: [job_type.network],
      runtime: runtimeName(runtime),
      memory: job_type.memory_limit,
      cpus: job_type.cpu_limit,
      gpus: job_type.gpus,
      timeoutS: timeout_s,
      stdoutBytes: caps?.stream_bytes ?? 0,
      artifactBytes: caps?.artifact_bytes ?? 0,
    });
    if (refusal) throw refused("job", refusal);
  }

  /**
   * A build runs on the engine's default runtime. Its own image names are checked too, because it
   * may overwrite them.
   *
   * @throws JobRefusal; EngineError; the signal's reason.
   */
  async function admitBuild(build: LeasedBuild, signal: AbortSignal) {
    const { job_type, base_image, repository, tags } = build;
    const made = tags.map((tag) => [`${repository}:${tag}`]);
    const refusal = explainRefusal(policy, {
      isBuild: true,
      isOfTenant: build.tenant !== undefined,
      jobType: job_type,
      images: policy.agent_images ? [await images.namesOf(base_image, signal), ...made] : [],
      networks: [],
      runtime: runtimeName(null),
    });
    if (refusal) throw refused("build", refusal);
  }

  /** An image to be fetched, under all names that it will have here. @throws JobRefusal */
  function admitImage(jobType: string, names: readonly string[]): void {
    const refusal = explainRefusal(policy, {
      jobType,
      images: [names],
      networks: [],
      runtime: runtimeName(null),
    });
    if (refusal) throw refused("image", refusal);
  }

  return { admitJob, admitBuild, admitImage };
}

function refused(what: "job" | "build" | "image", refusal: string): JobRefusal {
  return new JobRefusal("config_error", `The agent's policy refuses the ${what}: ${refusal}.`);
}

/** Which runtime containers get; null means the engine's default. */
export type RuntimePolicy = {
  readonly runtime: string | null;
  /** If the engine lacks the runtime, refuse jobs instead of using its default. */
  readonly strict: boolean;
};

/**
 * Chooses a container's runtime from those that the engine has; null means the engine's default.
 */
export type RuntimeChoice = (runtimes: readonly string[]) => string | null;

/** The returned function throws JobRefusal if it must not fall back. */
export function createRuntimeChoice(
  { runtime, strict }: RuntimePolicy,
  log: Logger,
): RuntimeChoice {
  let hasWarned = false;
  return (runtimes) => {
    if (runtime === null || runtimes.includes(runtime)) return runtime;
    if (strict) {
      throw new JobRefusal(
        "config_error",
        `security_mode strict requires the runtime ${runtime}, which this agent's engine lacks`,
      );
    }
    if (!hasWarned)
      log.warn("the engine lacks the runtime {runtime}: its default is used instead", { runtime });
    hasWarned = true;
    return null;
  };
}

/** The job did not start and is not retried; its submitter sees the message. */
export class JobRefusal extends Error {
  override name = "JobRefusal";
  readonly type: ExecutionErrorType;

  constructor(type: ExecutionErrorType, message: string, options: ErrorOptions = {}) {
    super(message, options);
    this.type = type;
  }
}
