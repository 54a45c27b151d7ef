import { decodeUtf8 } from "../../shared/bytes.ts";
import type { DerivedJob, ForkRequest, RerunRequest } from "../../shared/wire/client/submission.ts";
import { parseJsonInPieces, type JsonObject } from "../../shared/json.ts";
import { limits } from "../../shared/wire/limits.ts";
import type { ClientDeps } from "../deps.ts";
import type { ToolChoice } from "../domain/tools.ts";
import { AppError, notFound } from "../errors.ts";
import { findExecution } from "../store/jobs/read.ts";
import { findSubmitted } from "../store/jobs/lease.ts";
import { wholeFilesOf } from "../store/jobs/input-files.ts";
import type { Origin } from "./new-execution.ts";
import { submit } from "./submit.ts";

/**
 * Submits a new job made from an earlier execution, finished or not. A rerun takes its code; a fork has
 * new code. Both take its input, stdin, args, files, tools, job type, limits, requirements and metadata unless the request overrides
 * them.
 *
 * @throws AppError 404 when the execution is unknown; 409 when it is a call of a session; and the errors of `submit`.
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
  if (parent.sessionId !== null) {
    const detail = `Job ${parentId} is a call of session ${parent.sessionId}, whose variables it may need. Send its code to a session again: POST /sessions/{id}/execute.`;
    throw new AppError("conflict", detail, { job_id: parentId, session_id: parent.sessionId });
  }
  const { stdin = submitted.stdin && decodeUtf8(submitted.stdin) } = request;
  const input = await parseJsonInPieces(decodeUtf8(submitted.input), {
    depth: limits.jsonDepthMax,
  });
  const tools = toolsOfChild(request, submitted.tools);
  const relationship = "code" in request ? "fork" : "rerun";
  const job = await submit(
    deps,
    {
      code: "code" in request ? request.code : decodeUtf8(submitted.code),
      input_data: input as JsonObject,
      stdin: stdin ?? undefined,
      args: request.args ?? submitted.args ?? undefined,
      ...submitted.program,
      results: request.results ?? parent.results !== null,
      ...tools,
      job_type: request.job_type ?? parent.jobType,
      timeout: request.timeout ?? parent.timeoutS,
      startup_timeout: parent.startupTimeoutS,
      requirements: parent.requirements,
      idempotency_key: request.idempotency_key,
      metadata: request.metadata ?? parent.metadata ?? undefined,
      run_at: request.run_at,
      queue_timeout: request.queue_timeout,
      max_attempts: request.max_attempts ?? (tools.tools ? undefined : parent.maxAttempts),
      callback_url: request.callback_url,
    },
    { ...origin, mode: "async", lineage: { parentExecutionId: parentId, relationship } },
    parent.inputs === null ? [] : await wholeFilesOf(deps.db, parentId),
  );
  return { ...job, parent_execution_id: parentId, relationship };
}

/** Those of the request, else the parent's; an empty list means none. */
function toolsOfChild(
  { tools, tool_timeout }: RerunRequest,
  parents: ToolChoice | null,
): Partial<ToolChoice> {
  if (tools !== undefined && tools.length === 0) return tool_timeout ? { tool_timeout } : {};
  return {
    ...parents,
    ...(tools !== undefined && { tools }),
    ...(tool_timeout !== undefined && { tool_timeout }),
  };
}
