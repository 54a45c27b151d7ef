import type { ExecutionError } from "../../shared/errors.ts";

/** Adds to an import error that the job's `requirements` were not installed, and why. */
export function explainIgnored(
  error: ExecutionError | null,
  requirements: string[],
): ExecutionError | null {
  if (error?.type !== "import_error" || requirements.length === 0) return error;
  const ignored = `The requirements (${requirements.join(", ")}) were not installed: allow_runtime_requirements is false.`;
  return { ...error, message: `${error.message} ${ignored}` };
}
