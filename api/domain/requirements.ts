import type { ExecutionError } from "../../shared/wire/errors.ts";
import type { Config } from "../../shared/config/config.ts";
import type { JobType } from "../../shared/wire/job-type.ts";
import { jobTypeNames, resolveJobType } from "./job-types.ts";

/** Says that the job's `requirements` were not installed, and why; undefined if there are none. */
export function describeIgnored(requirements: string[]): string | undefined {
  if (requirements.length === 0) return undefined;
  return `The requirements (${requirements.join(", ")}) were not installed: allow_runtime_requirements is false.`;
}

/** Adds to an import error that the job's `requirements` were not installed, and why. */
export function explainIgnored(
  error: ExecutionError | null,
  ignored: string | undefined,
): ExecutionError | null {
  if (error?.type !== "import_error" || ignored === undefined) return error;
  return { ...error, message: `${error.message}. ${ignored}` };
}

/** Adds to an import error that the packages of the job type are missing because the type is not built. */
export function explainNotBuilt(
  error: ExecutionError | null,
  { name, requirements }: Pick<JobType, "name" | "requirements">,
): ExecutionError | null {
  if (error?.type !== "import_error" || requirements.length === 0) return error;
  const missing = `Job type ${name} is not built, so its requirements (${requirements.join(", ")}) are not installed: POST /job-types/${name}/build.`;
  return { ...error, message: `${error.message}. ${missing}` };
}

/** Modules whose package has another name. */
const packages: Readonly<Record<string, string>> = {
  PIL: "pillow",
  bs4: "beautifulsoup4",
  cv2: "opencv-python-headless",
  dateutil: "python-dateutil",
  docx: "python-docx",
  skimage: "scikit-image",
  sklearn: "scikit-learn",
  yaml: "pyyaml",
};

const ipython =
  "IPython is not installed: display(value) needs no import, and shows figures, tables and what has _repr_html_ and the like.";

/** Says how a tenant's code gets the module that an import error misses. */
export function describeMissing(
  error: ExecutionError | null,
  config: Config,
  { tenant, jobType, sessionId }: { tenant: string; jobType: string; sessionId: string | null },
): string | undefined {
  const [, module] =
    /^ModuleNotFoundError: No module named '(\w+)'$/.exec(error?.message ?? "") ?? [];
  if (module === undefined) return undefined;
  if (module === "IPython") return ipython;
  const name = packages[module] ?? module;
  const has = jobTypeNames(config, tenant).filter((type) =>
    resolveJobType(config, type)?.requirements.some((one) => nameOf(one) === nameOf(name)),
  );
  const ways = [
    ...(has.length > 0 ? [`use job_type ${has.slice(0, 3).join(" or ")}`] : []),
    ...(config.allow_runtime_requirements
      ? [
          `send requirements: [${JSON.stringify(name)}] with the ${sessionId === null ? "job" : "session"}`,
        ]
      : []),
  ];
  if (ways.length === 0)
    ways.push("an operator adds that to the requirements of a job type, and builds it");
  return `Job type ${jobType} has no module ${module}. If it comes from a package (${name}): ${ways.join(", or ")}.`;
}

/** The name of a requirement as indexes compare it: PEP 503. */
function nameOf(requirement: string): string {
  return /^[\w.-]*/
    .exec(requirement)![0]
    .toLowerCase()
    .replaceAll(/[-_.]+/g, "-");
}
