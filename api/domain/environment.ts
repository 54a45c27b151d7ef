import { canonicalJson } from "../../shared/json.ts";
import type { JobTypeView } from "../../shared/wire/job-type.ts";
import type { Config } from "../../shared/config/config.ts";
import type { JobType } from "../../shared/wire/job-type.ts";
import { defaultJobType, resolveJobType } from "./job-types.ts";

/** A build that has succeeded. */
export interface BuiltImage {
  jobType: string;
  tag: string;
  spec: string;
  imageRef: string;
  /** `sha256:…` */
  digest: string;
  pythonVersion: string;
  /** Set if the artifact store or a registry has the image; other agents get it from there. */
  archiveSha256?: string | null;
  manifestDigest?: string | null;
}

/** A job type and the image that its jobs run on now. */
export interface Environment {
  jobType: JobType;
  /** The last build with the type's present configuration, if there is one. */
  built: BuiltImage | undefined;
  /** Whether jobs of this type may run on a built image only. */
  mustBeBuilt: boolean;
}

/** The environments of every job type, "default" first. */
export function environments(config: Config, built: BuiltImage[]): Environment[] {
  const names = new Set([defaultJobType, ...Object.keys(config.job_types)]);
  return [...names].flatMap((name) => environment(config, built, name) ?? []);
}

/** The environment of one job type; undefined when none has that name. */
export function environment(
  config: Config,
  built: BuiltImage[],
  name: string,
): Environment | undefined {
  const jobType = resolveJobType(config, name);
  if (!jobType) return undefined;
  return {
    jobType,
    built: built.find((image) => image.jobType === name && image.spec === buildSpec(jobType)),
    mustBeBuilt: config.production_mode,
  };
}

/** Everything that the image of a job type is made of. If it changes, the type counts as not built. */
export type BuildSpec = Pick<JobType, "base_image" | "requirements">;

export function buildSpec({ base_image, requirements }: JobType): string {
  return canonicalJson({ base_image, requirements } satisfies BuildSpec);
}

/** The image of a job: the digest of the built image, else the name of the base image. */
export function imageOf({ jobType, built }: Environment): string {
  return built?.digest ?? jobType.base_image;
}

/** The reference that pins an image in records: docs/contract.md 4.12. */
export function pinnedRef(jobType: string, digest: string): string {
  return `${jobType}@${digest}`;
}

/** The digest in a pinned reference. */
export function digestOf(jobRef: string): string {
  return jobRef.slice(jobRef.indexOf("@") + 1);
}

/**
 * @param present Images that the engines of live agents have.
 * @param languages Those beside Python.
 */
export function toJobTypeView(
  environment: Environment,
  present: ReadonlySet<string>,
  languages: JobTypeView["languages"],
  config: Config,
): JobTypeView {
  const { jobType, built, mustBeBuilt } = environment;
  const python = built?.pythonVersion ?? expectedPython(jobType, config);
  const needsBuild = mustBeBuilt || jobType.requirements.length > 0;
  return {
    name: jobType.name,
    requirements: jobType.requirements,
    python_version: python,
    memory_limit: jobType.memory_limit,
    cpu_limit: jobType.cpu_limit,
    pids: jobType.pids,
    timeout: jobType.timeout,
    image_exists: (built !== undefined || !needsBuild) && present.has(imageOf(environment)),
    languages: [{ name: "python", version: python === "unknown" ? null : python }, ...languages],
  };
}

/** The Python version by the configuration or by the image's name, before a build has looked into the image. */
function expectedPython({ python_version, base_image }: JobType, config: Config): string {
  return python_version ?? pythonInName(base_image) ?? pythonInName(config.base_image) ?? "unknown";
}

function pythonInName(image: string): string | undefined {
  return /(?:^|\/)python:(3\.\d+(?:\.\d+)?)/.exec(image)?.[1];
}
