import type { Config } from "../../shared/config/config.ts";
import { canonicalJsonInPieces, writeJsonInPieces } from "../../shared/json.ts";
import { nearest } from "../../shared/nearest.ts";
import type { relationships } from "../../shared/wire/execution.ts";
import type { ExecuteRequest } from "../../shared/wire/client/submission.ts";
import type { JobType } from "../../shared/wire/job-type.ts";
import type { ClientDeps } from "../deps.ts";
import type { Environment } from "../domain/environment.ts";
import { jobTypeNames } from "../domain/job-types.ts";
import { isRunnable, notBuilt } from "../domain/agents/placement.ts";
import { languagesOf, programOf, resolveProgram } from "../domain/program.ts";
import { identityOf, neededFor } from "../domain/submission.ts";
import { attemptsOf, toolsOf } from "../domain/tools.ts";
import { isAllowedCallback } from "../domain/webhooks/callback.ts";
import type { FoundFiles } from "../files/input-files.ts";
import { AppError } from "../errors.ts";
import type { NewExecution } from "../store/jobs/submit.ts";
import { readEnvironment } from "./environments.ts";

/** Origin of a submission. */
export interface Origin {
  mode: "sync" | "async";
  correlationId: string;
  clientIp: string;
  keyId?: string | undefined;
  traceparent?: string | undefined;
  lineage?: { parentExecutionId: string; relationship: (typeof relationships)[number] };
}

/** @throws AppError 400 when the job type is unknown or must be built first. */
export async function runnableEnvironment(deps: ClientDeps, name: string): Promise<Environment> {
  const environment = await readEnvironment(deps, name);
  if (!environment) throw unknownJobType(deps, name);
  if (!isRunnable(environment)) {
    const message = "must be built first";
    throw new AppError("invalid_request", notBuilt(name), {
      errors: [{ path: "job_type", message }],
    });
  }
  return environment;
}

/**
 * @param identity Two submissions with the same idempotency key must have the same.
 * @throws AppError 422 when the timeout is above `max_timeout` or the job type has no such language; 400 when
 *   `callback_url` is not allowed, or fields are given that exclude each other.
 */
export async function newExecution(
  { config, newId, now, sha256 }: ClientDeps,
  request: ExecuteRequest,
  { mode, correlationId, clientIp, keyId, traceparent, lineage }: Origin,
  jobType: JobType,
  files: FoundFiles,
  identity: unknown = identityOf(request, lineage, files.identities),
): Promise<NewExecution> {
  const timeoutS = request.timeout ?? jobType.timeout;
  if (timeoutS > config.max_timeout) throw tooLong("timeout", timeoutS, "max_timeout", config);
  checkProgram(request, jobType);
  const tools = toolsOf(request);
  checkTools(request, config);
  const code = encode(request.code);
  const input = await writeJsonInPieces(request.input_data);
  const createdAt = now();
  const { stdin = "", args = [], metadata = {}, run_at, queue_timeout } = request;
  const { callback_url } = request;
  if (callback_url !== undefined) refuseOtherHosts(config, callback_url);
  const runAt = run_at === undefined ? undefined : Date.parse(run_at);
  const availableAt = Math.max(createdAt, runAt ?? 0);
  return {
    id: newId(),
    mode,
    jobType: request.job_type,
    timeoutS,
    startupTimeoutS: request.startup_timeout,
    requirements: request.requirements,
    availableAt,
    createdAt,
    code,
    input,
    stdin: stdin === "" ? undefined : encode(stdin),
    args: args.length === 0 ? undefined : args,
    program: programOf(request),
    tools,
    results: request.results === true || tools ? "all" : undefined,
    inputs: neededFor(request, files.rows, jobType) ?? undefined,
    files: files.rows,
    codeBytes: code.length,
    inputBytes: input.length,
    codeHash: await sha256(code),
    inputHash: await sha256(input),
    submissionHash: await sha256(await canonicalJsonInPieces(identity)),
    idempotencyKey: request.idempotency_key,
    correlationId,
    clientIp,
    keyId,
    priority: jobType.priority,
    metadata: Object.keys(metadata).length > 0 ? metadata : undefined,
    maxAttempts: attemptsOf(request),
    runAt,
    startBy: queue_timeout === undefined ? undefined : availableAt + queue_timeout * 1000,
    traceparent,
    callbackUrl: callback_url,
    ...lineage,
  };
}

function checkTools(request: ExecuteRequest, config: Config): void {
  const { results, max_attempts = 1, tool_timeout = 1 } = request;
  if (!toolsOf(request)) {
    if (request.tool_timeout === undefined) return;
    throw wrongField("tool_timeout", "is for a request with tools: leave it out");
  }
  if (results === false) {
    throw wrongField("results", "cannot be false with tools: leave it out");
  }
  if (max_attempts !== 1) {
    throw wrongField("max_attempts", "must be 1 with tools, as it is without the field");
  }
  if (tool_timeout > config.max_timeout)
    throw tooLong("tool_timeout", tool_timeout, "max_timeout", config);
}

/** The refusal of a field that is above the configuration key `limit`. */
export function tooLong(
  path: string,
  seconds: number,
  limit: "max_timeout" | "max_session_lifetime",
  { [limit]: most }: Config,
): AppError {
  return new AppError(
    "timeout_too_long",
    `${path}: ${seconds} s is above the configured ${limit} of ${most} s.`,
    { errors: [{ path, message: `must be at most ${most}` }] },
  );
}

function checkProgram(request: ExecuteRequest, jobType: JobType): void {
  const { language, command, compile_command, requirements } = request;
  if (language !== undefined && command !== undefined) {
    throw wrongField("command", "cannot be used with language: send one of them");
  }
  if (compile_command !== undefined && command === undefined) {
    throw wrongField("compile_command", "is the compiler of a command: send command too");
  }
  const program = programOf(request);
  if (program === undefined) return;
  const pythonOnly = {
    results: request.results === true,
    tools: toolsOf(request) !== undefined,
    requirements: requirements.length > 0,
  };
  for (const [field, isGiven] of Object.entries(pythonOnly)) {
    if (!isGiven) continue;
    const advice = "are for Python only: leave them out with another language or a command";
    throw wrongField(field, advice);
  }
  if (resolveProgram(program, jobType) !== undefined) return;
  const known = ["python", ...Object.keys(languagesOf(jobType))].sort();
  const meant = nearest(language ?? "", known);
  throw new AppError(
    "language_unavailable",
    `language: job type ${jobType.name} has no language ${JSON.stringify(language)}${meant === undefined ? "" : `: did you mean ${JSON.stringify(meant)}?`}`,
    { errors: [{ path: "language", message: `must be one of: ${known.join(", ")}` }] },
  );
}

/** @throws AppError 400 when no host of `webhook_callbacks` allows the address. */
function refuseOtherHosts({ webhook_callbacks: callbacks }: Config, url: string): void {
  if (callbacks && isAllowedCallback(url, callbacks.hosts)) return;
  const message = `${new URL(url).origin} is not one of the allowed hosts: ask the operator of this service to add it (webhook_callbacks)`;
  throw wrongField("callback_url", message);
}

export function wrongField(path: string, message: string): AppError {
  return new AppError("invalid_request", `${path}: ${message}`, { errors: [{ path, message }] });
}

function unknownJobType({ config, db }: ClientDeps, name: string): AppError {
  const known = jobTypeNames(config, db.tenant);
  const meant = nearest(name, known);
  const hint = meant === undefined ? "." : `: did you mean ${JSON.stringify(meant)}?`;
  return new AppError(
    "invalid_request",
    `job_type: no job type is named ${JSON.stringify(name)}${hint}`,
    {
      errors: [{ path: "job_type", message: `must be one of: ${known.join(", ")}` }],
    },
  );
}

function encode(text: string): Uint8Array {
  return new TextEncoder().encode(text);
}
