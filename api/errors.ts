import type { ContentfulStatusCode } from "hono/utils/http-status";
import type { Quota } from "../shared/wire/access.ts";
import type {
  EndReason,
  ExecutionError,
  FieldError,
  Problem,
  ProblemCode,
} from "../shared/wire/errors.ts";

/** Codes of refused requests with their HTTP status: docs/contract.md 9.10 to 9.18. */
export const errorStatus = {
  invalid_request: 400,
  unauthorized: 401,
  forbidden: 403,
  not_found: 404,
  method_not_allowed: 405,
  wait_timeout: 408,
  conflict: 409,
  session_ended: 409,
  lease_lost: 409,
  length_required: 411,
  too_large: 413,
  unsupported_encoding: 415,
  range_not_satisfiable: 416,
  timeout_too_long: 422,
  language_unavailable: 422,
  batch_too_large: 422,
  files_too_large: 422,
  build_failed: 422,
  rate_limited: 429,
  quota_exceeded: 429,
  too_many_sessions: 429,
  headers_too_large: 431,
  internal: 500,
  engine_failed: 502,
  unavailable: 503,
} as const satisfies Record<ProblemCode, ContentfulStatusCode>;
export type ErrorCode = ProblemCode;

export const errorTitles: Record<ErrorCode, string> = {
  invalid_request: "Bad Request",
  unauthorized: "Unauthorized",
  forbidden: "Forbidden",
  not_found: "Not Found",
  method_not_allowed: "Method Not Allowed",
  wait_timeout: "Request Timeout",
  conflict: "Conflict",
  session_ended: "Session Ended",
  lease_lost: "Lease Lost",
  length_required: "Length Required",
  too_large: "Content Too Large",
  unsupported_encoding: "Unsupported Encoding",
  range_not_satisfiable: "Range Not Satisfiable",
  timeout_too_long: "Unprocessable Content",
  language_unavailable: "Language Unavailable",
  batch_too_large: "Batch Too Large",
  files_too_large: "Files Too Large",
  build_failed: "Build Failed",
  rate_limited: "Too Many Requests",
  quota_exceeded: "Quota Exceeded",
  too_many_sessions: "Too Many Sessions",
  headers_too_large: "Request Header Fields Too Large",
  internal: "Internal Server Error",
  engine_failed: "Bad Gateway",
  unavailable: "Service Unavailable",
};

/** Address of the text that explains a code, on the page that api/http/pages.ts serves. */
export function problemType(code: ErrorCode): string {
  return `/docs/problems#${code}`;
}

export interface ErrorExtras {
  errors?: FieldError[];
  error?: ExecutionError;
  existing_job_id?: string;
  job_id?: string;
  session_id?: string;
  reason?: EndReason;
  quota?: Quota;
  limit?: number;
  used?: number;
}

/** A refused request. */
export class AppError extends Error {
  override name = "AppError";
  readonly code: ErrorCode;
  readonly extras: ErrorExtras;
  readonly headers: Record<string, string>;

  constructor(
    code: ErrorCode,
    detail: string,
    extras: ErrorExtras = {},
    headers: Record<string, string> = {},
    cause?: unknown,
  ) {
    super(detail, { cause });
    this.code = code;
    this.extras = extras;
    this.headers = headers;
  }
}

/** The problem details (RFC 9457) of a refusal. */
export function problemOf({ code, message, extras }: AppError, correlationId: string): Problem {
  return {
    type: problemType(code),
    code,
    title: errorTitles[code],
    status: errorStatus[code],
    detail: message,
    correlation_id: correlationId,
    ...extras,
  };
}

/** 400 that names every fault of a request, or of a part of it. */
export const notValid = (what: string, errors: FieldError[]): AppError =>
  wrongFields(errors, `${what} is not valid: `);

export function wrongFields(errors: FieldError[], before = ""): AppError {
  const detail = errors.map(({ path, message }) => `${path}: ${message}`).join("; ");
  return new AppError("invalid_request", before + detail, { errors });
}

export const wrongField = (path: string, message: string): AppError =>
  wrongFields([{ path, message }]);

export function unauthorized(detail: string): AppError {
  return new AppError("unauthorized", detail, {}, { "WWW-Authenticate": 'Bearer realm="airlock"' });
}

export function notFound(what: string, extras: ErrorExtras = {}): AppError {
  return new AppError("not_found", `${what} does not exist.`, extras);
}

/** The same refusal, of a request whose job is stored. */
export function withJob({ code, message, extras, headers }: AppError, jobId: string): AppError {
  return new AppError(code, message, { ...extras, job_id: jobId }, headers);
}

/**
 * 503 with `Retry-After`: the same request may succeed later. If no job is named, nothing was stored.
 */
export function unavailable(
  detail: string,
  retryAfterS: number,
  { jobId, cause }: { jobId?: string; cause?: unknown } = {},
): AppError {
  return new AppError(
    "unavailable",
    detail,
    {
      error: { type: "service_unavailable", message: detail, phase: "startup" },
      ...(jobId !== undefined && { job_id: jobId }),
    },
    { "Retry-After": String(retryAfterS) },
    cause,
  );
}
