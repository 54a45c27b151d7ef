import type { Config } from "../../shared/config/config.ts";

/** The schemas of requests that make a job. */
const requests = ["ExecuteRequest", "AsyncSubmitRequest", "RerunRequest", "ForkRequest"];

/** What this service is configured to accept of a tenant, in the schemas of its document. */
export function describeConfigured<Schema>(
  schemas: Record<string, Schema>,
  config: Config,
  jobTypes: readonly string[],
): Record<string, Schema> {
  const changed = requests.map((name) => {
    const schema = schemas[name] as Schema & { properties: Record<string, object> };
    const { timeout, job_type } = schema.properties;
    const properties = {
      ...schema.properties,
      timeout: { ...timeout, maximum: config.max_timeout },
      // A schema has no empty list.
      job_type: { ...job_type, ...(jobTypes.length > 0 && { enum: jobTypes }) },
    };
    return [name, { ...schema, properties }] as const;
  });
  return { ...schemas, ...Object.fromEntries(changed) };
}
