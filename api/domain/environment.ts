import type { JobTypeView } from "../../shared/wire/job-type.ts";
import type { Config } from "../../shared/config/config.ts";
import type { JobType } from "../../shared/wire/job-type.ts";
import { defaultJobType, resolveJobType } from "./job-types.ts";
import { canonicalJson } from "./submission.ts";

/** A build that has succeeded. */
export interface BuiltImage {
  jobType: string;
  tag: string;
  spec: string;
  imageRef: string;
  /** `sha256:…` */
  digest: string;
  pythonVersion: string;
  /** Set where the artifact store has it, or a registry: other agents get it from there. */
  archiveSha256?: string | null;
  manifestDigest?: string | null;
}

/** What jobs of a type run on now. */
export interface Environment {
  jobType: JobType;
  /** The last build of the type as it is configured now, if there is one. */
  built: BuiltImage | undefined;
  /** Whether the image must be a built one. */
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
  const spec = buildSpec(jobType);
  return {
    jobType,
    built: built.find((image) => image.jobType === name && image.spec === spec),
    mustBeBuilt: config.production_mode,
  };
}

/** All that goes into the image of a job type: a type that asks for something else is not built. */
export type BuildSpec = Pick<JobType, "base_image" | "requirements">;

export function buildSpec({ base_image, requirements }: JobType): string {
  return canonicalJson({ base_image, requirements } satisfies BuildSpec);
}

/** The image of a job: the built one by its digest, else the base image by its name. */
export function imageOf({ jobType, built }: Environment): string {
  return built?.digest ?? jobType.base_image;
}

/** The reference that pins an image in records: docs/contract.md 4.12. */
export function pinnedRef(jobType: string, digest: string): string {
  return `${jobType}@${digest}`;
}

/** The digest that a reference pins. */
export function digestOf(jobRef: string): string {
  return jobRef.slice(jobRef.indexOf("@") + 1);
}

/** `present`: images that the engines of live agents have. */
export function toJobTypeView(
  environment: Environment,
  present: ReadonlySet<string>,
  config: Config,
): JobTypeView {
  const { jobType, built, mustBeBuilt } = environment;
  const needsBuild = mustBeBuilt || jobType.requirements.length > 0;
  return {
    name: jobType.name,
    requirements: jobType.requirements,
    python_version: built?.pythonVersion ?? expectedPython(jobType, config),
    memory_limit: jobType.memory_limit,
    cpu_limit: jobType.cpu_limit,
    timeout: jobType.timeout,
    image_exists: (built !== undefined || !needsBuild) && present.has(imageOf(environment)),
  };
}

/** Nobody has looked into the base image yet: what is configured, or what images' names say. */
function expectedPython({ python_version, base_image }: JobType, config: Config): string {
  return python_version ?? pythonInName(base_image) ?? pythonInName(config.base_image) ?? "unknown";
}

function pythonInName(image: string): string | undefined {
  return /(?:^|\/)python:(3\.\d+(?:\.\d+)?)/.exec(image)?.[1];
}
