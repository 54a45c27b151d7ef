import { z } from "zod";
import { JobTypeList, type JobTypeView } from "../../../shared/wire/job-type.ts";
import { type Api, answered } from "../api.ts";

/** What the service is configured to do; parts are missing when the service cannot be asked. */
export interface Facts {
  jobTypes: JobTypeView[];
  maxTimeoutS: number | undefined;
}

const Document = z.object({
  components: z.object({
    schemas: z.object({
      ExecuteRequest: z.object({
        properties: z.object({ timeout: z.object({ maximum: z.number() }) }),
      }),
    }),
  }),
});

export async function readFacts(api: Api): Promise<Facts> {
  const read = async (path: string) => (await answered(await api(path))).json();
  const [jobTypes, document] = await Promise.all([read("/job-types"), read("/openapi.json")]);
  const { ExecuteRequest } = Document.parse(document).components.schemas;
  return {
    jobTypes: JobTypeList.parse(jobTypes),
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
