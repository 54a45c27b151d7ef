import type { ExecutionError } from "../../shared/wire/errors.ts";
import type { JobType } from "../../shared/wire/job-type.ts";

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
