import type { EngineHealth } from "../../shared/wire/health.ts";
import type { LeasedBuild, LeasedJob } from "../../shared/wire/agent/lease.ts";
import { JobRefusal } from "./refusal.ts";
import { type Policy, explainRefusal } from "./policy.ts";

/** Checks what the API asks for against the operator's policy. Pulls and starts nothing. */
export type Admission = {
  /** @throws JobRefusal; EngineError; the signal's reason. */
  readonly admitJob: (job: JobAsked, runtime: string | null, signal: AbortSignal) => Promise<void>;
  /** @throws JobRefusal; EngineError; the signal's reason. */
  readonly admitBuild: (build: LeasedBuild, signal: AbortSignal) => Promise<void>;
  /** An image to be fetched, under all names that it will have here. @throws JobRefusal */
  readonly admitImage: (jobType: string, names: readonly string[]) => void;
};

/** A job, or the known part of a job that may come. */
export type JobAsked = Pick<LeasedJob, "job_type" | "image"> &
  Partial<Pick<LeasedJob, "timeout_s" | "caps">>;

export type AdmissionDeps = {
  readonly policy: Policy;
  readonly images: {
    /** All names of the image that a reference stands for. */
    readonly namesOf: (reference: string, signal: AbortSignal) => Promise<readonly string[]>;
  };
  readonly engine: { readonly health: () => Pick<EngineHealth, "runtimes"> };
};

export function createAdmission({ policy, images, engine }: AdmissionDeps): Admission {
  const runtimeName = (runtime: string | null): string =>
    runtime ?? engine.health().runtimes[0] ?? "a runtime that is not known";

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
   */
  async function admitBuild(build: LeasedBuild, signal: AbortSignal) {
    const { job_type, base_image, repository, tags } = build;
    const made = tags.map((tag) => [`${repository}:${tag}`]);
    const refusal = explainRefusal(policy, {
      isBuild: true,
      jobType: job_type,
      images: policy.agent_images ? [await images.namesOf(base_image, signal), ...made] : [],
      networks: [],
      runtime: runtimeName(null),
    });
    if (refusal) throw refused("build", refusal);
  }

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
