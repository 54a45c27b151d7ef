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
    // Not `new.target.name`: bundlers shorten the names of classes.
    if (problem && new.target !== ProblemError) this.name = nameOf(problem.code);
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

export class InvalidRequestError extends ProblemError {}
export class UnauthorizedError extends ProblemError {}
export class ForbiddenError extends ProblemError {}
export class NotFoundError extends ProblemError {}
export class MethodNotAllowedError extends ProblemError {}
export class WaitTimeoutError extends ProblemError {}
export class ConflictError extends ProblemError {}
export class SessionEndedError extends ProblemError {}
export class LeaseLostError extends ProblemError {}
export class LengthRequiredError extends ProblemError {}
export class TooLargeError extends ProblemError {}
export class UnsupportedEncodingError extends ProblemError {}
export class RangeNotSatisfiableError extends ProblemError {}
export class TimeoutTooLongError extends ProblemError {}
export class LanguageUnavailableError extends ProblemError {}
export class BatchTooLargeError extends ProblemError {}
export class FilesTooLargeError extends ProblemError {}
export class BuildFailedError extends ProblemError {}
export class RateLimitedError extends ProblemError {}
export class QuotaExceededError extends ProblemError {}
export class TooManySessionsError extends ProblemError {}
export class HeadersTooLargeError extends ProblemError {}
export class InternalError extends ProblemError {}
export class EngineFailedError extends ProblemError {}
export class UnavailableError extends ProblemError {}

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

/** The name of the class of a code: `not_found` has NotFoundError. */
function nameOf(code: ProblemCode): string {
  const words = code.split("_").map((word) => word.charAt(0).toUpperCase() + word.slice(1));
  return `${words.join("")}Error`;
}

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
