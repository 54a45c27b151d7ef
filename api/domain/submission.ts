import { parseBytes } from "../../shared/bytes.ts";
import type { JobType } from "../../shared/wire/job-type.ts";
import type { InputWay } from "../../shared/wire/file.ts";
import { limits } from "../../shared/wire/limits.ts";
import type { ExecuteRequest } from "../../shared/wire/client/submission.ts";
import { programOf } from "./program.ts";
import { attemptsOf, toolsOf } from "./tools.ts";

/**
 * What identifies a submission: equal submissions have equal parts, so a repeat is recognised. Fields that were added
 * after the first version are included only where they are given, so that repeats of older submissions still match.
 *
 * @param files What says which files it asks for.
 */
export function identityOf(
  request: ExecuteRequest,
  lineage?: object,
  files: object[] = [],
): unknown[] {
  const { stdin = "", args = [], metadata = {}, run_at, queue_timeout } = request;
  const { callback_url } = request;
  const max_attempts = attemptsOf(request) ?? limits.maxAttempts;
  const program = programOf(request);
  const added = {
    ...lineage,
    ...(program !== undefined && { program }),
    ...(request.results === true && { results: true }),
    ...toolsOf(request),
    ...(stdin !== "" && { stdin }),
    ...(args.length > 0 && { args }),
    ...(files.length > 0 && { files }),
    ...(Object.keys(metadata).length > 0 && { metadata }),
    ...(run_at !== undefined && { run_at: Date.parse(run_at) }),
    ...(queue_timeout !== undefined && { queue_timeout }),
    ...(callback_url !== undefined && { callback_url }),
    ...(max_attempts < limits.maxAttempts && { max_attempts }),
  };
  return [
    request.code,
    request.input_data,
    request.timeout ?? null,
    request.startup_timeout,
    request.job_type,
    request.requirements,
    ...(Object.keys(added).length > 0 ? [added] : []),
  ];
}

/**
 * What an agent must be able to do for a job; null if every agent can run it. Files that are copied use
 * the job's memory, so files of many bytes must be mounted.
 */
export function neededFor(
  { stdin = "", args = [] }: ExecuteRequest,
  files: { sizeBytes: number }[],
  { memory_limit }: JobType,
): InputWay | null {
  const bytes = files.reduce((sum, { sizeBytes }) => sum + sizeBytes, 0);
  if (bytes > parseBytes(memory_limit) / 4) return "mount";
  return stdin === "" && args.length === 0 && files.length === 0 ? null : "frames";
}
