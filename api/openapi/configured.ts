import type { Config } from "../../shared/config/config.ts";

/** The schemas of requests that make a job. */
const requests = ["ExecuteRequest", "AsyncSubmitRequest", "RerunRequest", "ForkRequest"];

/** What this service is configured to accept, in the schemas of its document. */
export function describeConfigured<Schema>(
  schemas: Record<string, Schema>,
  config: Config,
): Record<string, Schema> {
  const changed = requests.map((name) => {
    const schema = schemas[name] as Schema & { properties: Record<string, object> };
    const { timeout, job_type } = schema.properties;
    const properties = {
      ...schema.properties,
      timeout: { ...timeout, maximum: config.max_timeout },
      job_type: { ...job_type, enum: ["default", ...otherJobTypes(config)] },
    };
    return [name, { ...schema, properties }] as const;
  });
  return { ...schemas, ...Object.fromEntries(changed) };
}

function otherJobTypes({ job_types }: Config): string[] {
  return Object.keys(job_types).filter((name) => name !== "default");
}
