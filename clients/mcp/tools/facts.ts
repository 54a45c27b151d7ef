import type { JobType } from "../../typescript/src/generated.ts";
import type { Verbs } from "../../typescript/src/verbs.ts";

/** What the service is configured to do; parts are missing when the service cannot be asked. */
export interface Facts {
  jobTypes: JobType[];
  maxTimeoutS: number | undefined;
}

type Document = {
  components: {
    schemas: { ExecuteRequest: { properties: { timeout: { maximum: number } } } };
  };
};

export async function readFacts({ request }: Verbs): Promise<Facts> {
  // Clients list the tools when they start: a service that hangs must not hold them up.
  const soon = { retries: 0, timeoutMs: 5000 };
  const read = async (path: string): Promise<unknown> => (await request(path, {}, soon)).json();
  const [jobTypes, document] = await Promise.all([read("/job-types"), read("/openapi.json")]);
  const { ExecuteRequest } = (document as Document).components.schemas;
  return {
    jobTypes: jobTypes as JobType[],
    maxTimeoutS: ExecuteRequest.properties.timeout.maximum,
  };
}

/** One line for each job type: its Python, packages and limits. */
export function describeJobTypes({ jobTypes, maxTimeoutS }: Facts): string {
  const lines = jobTypes.map((type) => {
    const packages = type.requirements.join(", ") || "those of its image, else none";
    const missing = type.image_exists ? "" : " No connected host has its image at the moment.";
    return `- ${type.name}: Python ${type.python_version}; packages: ${packages}; ${type.memory_limit} memory, ${type.cpu_limit} CPU, ${type.timeout} s.${missing}`;
  });
  const most = maxTimeoutS === undefined ? "" : ` \`timeout\` can be at most ${maxTimeoutS} s.`;
  return `Job types (\`job_type\`), each with its packages beside the standard library, and its limits:\n${lines.join("\n")}\nThe seconds are the time limit of the code unless \`timeout\` gives another.${most}`;
}
