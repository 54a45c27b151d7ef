import type { Config } from "../../shared/config/config.ts";
import { JobTypeDefinition, type JobType } from "../../shared/wire/job-type.ts";
import type { LeasedJobType } from "../../shared/wire/agent/leased-job-type.ts";

/** The job type of requests that name none; `[job_types.default]` overrides it. */
export const defaultJobType = "default";

/** A job type with the configuration's defaults filled in; undefined when none has that name. */
export function resolveJobType(config: Config, name: string): JobType | undefined {
  const definition = definitionOf(config, name);
  if (!definition) return undefined;
  return {
    ...definition,
    name,
    base_image: definition.base_image ?? officialImage(definition) ?? config.base_image,
    timeout: Math.min(definition.timeout ?? config.default_timeout, config.max_timeout),
  };
}

/** Whether a tenant may use a job type; "*" is whoever sees all tenants. */
export function isFor(tenant: string, { tenants }: Pick<JobType, "tenants">): boolean {
  return tenants === undefined || tenant === "*" || tenants.includes(tenant);
}

/** The names of a tenant's job types, `default` first. */
export function jobTypeNames(config: Config, tenant: string): string[] {
  const names = [...new Set([defaultJobType, ...Object.keys(config.job_types)])];
  return names.filter((name) => isFor(tenant, definitionOf(config, name) ?? ofDefault));
}

/** A job type as agents receive it. */
export function toLeasedJobType({
  priority: _priority,
  languages: _languages,
  tenants: _tenants,
  ...jobType
}: JobType): LeasedJobType {
  return jobType;
}

const ofDefault = JobTypeDefinition.parse({});

function definitionOf(config: Config, name: string): JobTypeDefinition | undefined {
  if (Object.hasOwn(config.job_types, name)) return config.job_types[name];
  return name === defaultJobType ? ofDefault : undefined;
}

function officialImage({ python_version }: JobTypeDefinition): string | undefined {
  return python_version && `python:${python_version}-slim`;
}
