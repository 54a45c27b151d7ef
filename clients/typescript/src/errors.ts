import type { Problem, ProblemCode } from "./generated.ts";

/** Every error of this client: a refused request, a lost connection, or a time-out. */
export class AirlockError extends Error {
  override name = "AirlockError";
  /** The job that the error is about, if it is known. */
  jobId: string | undefined;
}

/** The service could not be reached, or the connection broke, also after the retries. */
export class ConnectionError extends AirlockError {
  override name = "ConnectionError";
}

/** The service did not answer within `timeoutMs`, also after the retries. */
export class NoAnswerError extends ConnectionError {
  override name = "NoAnswerError";
}

export const notAirlock =
  "The address answers with a page, not as Airlock does: check it, and what is between.";

/** Whether an answer is a page for browsers, such as a proxy's, and not a file of that type. */
export function isPage({ headers }: Response): boolean {
  const isHtml = headers.get("Content-Type")?.startsWith("text/html") === true;
  return isHtml && !headers.has("Content-Disposition");
}

/** The service refused the request. Each problem code has a subclass. */
export class ProblemError extends AirlockError {
  override name = "ProblemError";
  /** What the service said. If it said nothing, a proxy in front of it answered. */
  readonly problem: Problem | undefined;
  readonly status: number;
  /** Seconds after which the same request may succeed. */
  readonly retryAfterS: number | undefined;

  constructor(
    status: number,
    message: string,
    { problem, retryAfterS }: { problem?: Problem | undefined; retryAfterS?: number | undefined },
  ) {
    super(message);
    this.status = status;
    this.problem = problem;
    this.retryAfterS = retryAfterS;
    this.jobId = problem?.job_id ?? problem?.existing_job_id;
  }

  get code(): ProblemCode | undefined {
    return this.problem?.code;
  }

  /** Identifies the request in the service's log. */
  get correlationId(): string | undefined {
    return this.problem?.correlation_id;
  }
}

export class InvalidRequestError extends ProblemError {
  override name = "InvalidRequestError";
}
export class UnauthorizedError extends ProblemError {
  override name = "UnauthorizedError";
}
export class ForbiddenError extends ProblemError {
  override name = "ForbiddenError";
}
export class NotFoundError extends ProblemError {
  override name = "NotFoundError";
}
export class MethodNotAllowedError extends ProblemError {
  override name = "MethodNotAllowedError";
}
export class WaitTimeoutError extends ProblemError {
  override name = "WaitTimeoutError";
}
export class ConflictError extends ProblemError {
  override name = "ConflictError";
}
export class SessionEndedError extends ProblemError {
  override name = "SessionEndedError";
}
export class LeaseLostError extends ProblemError {
  override name = "LeaseLostError";
}
export class LengthRequiredError extends ProblemError {
  override name = "LengthRequiredError";
}
export class TooLargeError extends ProblemError {
  override name = "TooLargeError";
}
export class UnsupportedEncodingError extends ProblemError {
  override name = "UnsupportedEncodingError";
}
export class RangeNotSatisfiableError extends ProblemError {
  override name = "RangeNotSatisfiableError";
}
export class TimeoutTooLongError extends ProblemError {
  override name = "TimeoutTooLongError";
}
export class LanguageUnavailableError extends ProblemError {
  override name = "LanguageUnavailableError";
}
export class BatchTooLargeError extends ProblemError {
  override name = "BatchTooLargeError";
}
export class FilesTooLargeError extends ProblemError {
  override name = "FilesTooLargeError";
}
export class BuildFailedError extends ProblemError {
  override name = "BuildFailedError";
}
export class RateLimitedError extends ProblemError {
  override name = "RateLimitedError";
}
export class QuotaExceededError extends ProblemError {
  override name = "QuotaExceededError";
}
export class TooManySessionsError extends ProblemError {
  override name = "TooManySessionsError";
}
export class HeadersTooLargeError extends ProblemError {
  override name = "HeadersTooLargeError";
}
export class InternalError extends ProblemError {
  override name = "InternalError";
}
export class EngineFailedError extends ProblemError {
  override name = "EngineFailedError";
}
export class UnavailableError extends ProblemError {
  override name = "UnavailableError";
}

/** The class of each code that the service may answer; a new code does not compile without one. */
export const problemClasses: Record<ProblemCode, typeof ProblemError> = {
  invalid_request: InvalidRequestError,
  unauthorized: UnauthorizedError,
  forbidden: ForbiddenError,
  not_found: NotFoundError,
  method_not_allowed: MethodNotAllowedError,
  wait_timeout: WaitTimeoutError,
  conflict: ConflictError,
  session_ended: SessionEndedError,
  lease_lost: LeaseLostError,
  length_required: LengthRequiredError,
  too_large: TooLargeError,
  unsupported_encoding: UnsupportedEncodingError,
  range_not_satisfiable: RangeNotSatisfiableError,
  timeout_too_long: TimeoutTooLongError,
  language_unavailable: LanguageUnavailableError,
  batch_too_large: BatchTooLargeError,
  files_too_large: FilesTooLargeError,
  build_failed: BuildFailedError,
  rate_limited: RateLimitedError,
  quota_exceeded: QuotaExceededError,
  too_many_sessions: TooManySessionsError,
  headers_too_large: HeadersTooLargeError,
  internal: InternalError,
  engine_failed: EngineFailedError,
  unavailable: UnavailableError,
};

/** The error that a refusal is thrown as. */
export async function problemError(response: Response): Promise<ProblemError> {
  const text = await response.text();
  const problem = asProblem(text);
  const retryAfter = Number(response.headers.get("Retry-After") ?? Number.NaN);
  const extras = {
    problem,
    retryAfterS: Number.isFinite(retryAfter) ? retryAfter : undefined,
  };
  if (!problem) {
    const what = `HTTP ${response.status} without a problem of Airlock's`;
    const words = isPage(response) ? notAirlock : text.slice(0, 200);
    return new ProblemError(response.status, `${what}: ${words}`, extras);
  }
  // An older client does not know a newer service's codes.
  const Class = problemClasses[problem.code] ?? ProblemError;
  return new Class(response.status, messageOf(problem), extras);
}

function asProblem(text: string): Problem | undefined {
  try {
    const body = JSON.parse(text) as Partial<Problem> | null;
    return typeof body?.code === "string" ? (body as Problem) : undefined;
  } catch {
    return undefined;
  }
}

/** The detail, and the messages of the fields that it does not contain. */
function messageOf({ detail, errors = [] }: Problem): string {
  const faults = errors
    .map(({ path, message }) => `${path}: ${message}`)
    .filter((fault) => !detail.includes(fault));
  return [detail, ...faults].join("\n  ");
}
