import { decodeUtf8 } from "../../shared/bytes.ts";
import type { DerivedJob, ForkRequest, RerunRequest } from "../../shared/wire/client/submission.ts";
import { parseJson, type JsonObject } from "../../shared/json.ts";
import { limits } from "../../shared/wire/limits.ts";
import type { ClientDeps } from "../deps.ts";
import { notFound } from "../errors.ts";
import { findExecution } from "../store/jobs/read.ts";
import { findSubmitted } from "../store/jobs/lease.ts";
import { wholeFilesOf } from "../store/jobs/input-files.ts";
import type { Origin } from "./new-execution.ts";
import { submit } from "./submit.ts";

/**
 * Submits a new job made from an earlier execution, finished or not. A rerun takes its code; a fork has
 * new code. Both take its input, stdin, args, files, job type, limits, requirements and metadata unless the request overrides
 * them.
 *
 * @throws AppError 404 when the execution is unknown; and the errors of `submit`.
 */
export async function derive(
  deps: ClientDeps,
  parentId: string,
  request: RerunRequest | ForkRequest,
  origin: Omit<Origin, "mode" | "lineage">,
): Promise<DerivedJob> {
  const [parent, submitted] = await Promise.all([
    findExecution(deps.db, parentId),
    findSubmitted(deps.db, parentId),
  ]);
  if (!parent || !submitted) throw notFound(`Job ${parentId}`);
  const { stdin = submitted.stdin && decodeUtf8(submitted.stdin) } = request;
  const relationship = "code" in request ? "fork" : "rerun";
  const job = await submit(
    deps,
    {
      code: "code" in request ? request.code : decodeUtf8(submitted.code),
      input_data: parseJson(decodeUtf8(submitted.input), limits.jsonDepthMax) as JsonObject,
      stdin: stdin ?? undefined,
      args: request.args ?? submitted.args ?? undefined,
      ...submitted.program,
      results: request.results ?? parent.results !== null,
      job_type: request.job_type ?? parent.jobType,
      timeout: request.timeout ?? parent.timeoutS,
      startup_timeout: parent.startupTimeoutS,
      requirements: parent.requirements,
      idempotency_key: request.idempotency_key,
      metadata: request.metadata ?? parent.metadata ?? undefined,
      run_at: request.run_at,
      queue_timeout: request.queue_timeout,
      max_attempts: request.max_attempts ?? parent.maxAttempts,
      callback_url: request.callback_url,
    },
    { ...origin, mode: "async", lineage: { parentExecutionId: parentId, relationship } },
    parent.inputs === null ? [] : await wholeFilesOf(deps.db, parentId),
  );
  return { ...job, parent_execution_id: parentId, relationship };
}
