import { z } from "zod";
import { Quota } from "./access.ts";

/** Why a session has ended. */
export const endReasons = [
  "deleted",
  "idle",
  "lifetime",
  "agent_lost",
  "agent_stopped",
  "out_of_memory",
  "engine_lost",
  "start_failed",
] as const;

export const EndReason = z.enum(endReasons).meta({
  id: "SessionEndReason",
  description:
    "deleted: a client ended it; idle: no call for `idle_timeout`; lifetime: its time is over; agent_lost: its agent died or was cut off; agent_stopped: its agent was stopped; out_of_memory: its processes together had more than the job type's memory_limit; engine_lost: its sandbox broke; start_failed: no interpreter could be started.",
});
export type EndReason = z.infer<typeof EndReason>;

/** Error types of an execution: docs/contract.md 9.1 to 9.8. */
const executionErrorTypes = [
  "timeout",
  "startup_timeout",
  "execution_timeout",
  "oom",
  "cancelled",
  "segfault",
  "abort",
  "arithmetic_error",
  "bus_error",
  "pipe_error",
  "killed",
  "compile_error",
  "syntax_error",
  "import_error",
  "type_error",
  "value_error",
  "key_error",
  "index_error",
  "attribute_error",
  "name_error",
  "file_not_found",
  "file_error",
  "os_error",
  "recursion_error",
  "assertion_error",
  "division_error",
  "overflow_error",
  "encoding_error",
  "json_error",
  "permission",
  "dependency_error",
  "build_error",
  "network_error",
  "network_timeout",
  "docker_error",
  "service_unavailable",
  "config_error",
  "interpreter_ended",
  "internal_error",
  "runtime_error",
  "unknown",
] as const;

export const ExecutionErrorType = z.enum(executionErrorTypes).meta({
  id: "ExecutionErrorType",
  description: "What ended the execution.",
  example: "value_error",
});
export type ExecutionErrorType = z.infer<typeof ExecutionErrorType>;

export const ExecutionPhase = z.enum(["startup", "execution"]).meta({
  id: "ExecutionPhase",
  description: "startup: container and dependencies; execution: the submitted code.",
});
export type ExecutionPhase = z.infer<typeof ExecutionPhase>;

export const ExecutionError = z
  .object({
    type: ExecutionErrorType,
    message: z.string().meta({ example: "ValueError: bad input" }),
    phase: ExecutionPhase,
  })
  .meta({ id: "ExecutionError", description: "Why an execution did not succeed." });
export type ExecutionError = z.infer<typeof ExecutionError>;

/** One fault of a request, with the path of the field that holds it. */
export const FieldError = z
  .object({
    path: z.string().meta({ description: "Dotted path of the field.", example: "timeout" }),
    message: z.string().meta({ example: "must be at most 86400" }),
  })
  .meta({ id: "FieldError", description: "One fault of a request." });
export type FieldError = z.infer<typeof FieldError>;

/** Codes of refused requests; api/errors.ts has the HTTP status of each. */
export const problemCodes = [
  "invalid_request",
  "unauthorized",
  "forbidden",
  "not_found",
  "method_not_allowed",
  "wait_timeout",
  "conflict",
  "session_ended",
  "lease_lost",
  "length_required",
  "too_large",
  "unsupported_encoding",
  "range_not_satisfiable",
  "timeout_too_long",
  "language_unavailable",
  "batch_too_large",
  "files_too_large",
  "build_failed",
  "rate_limited",
  "quota_exceeded",
  "too_many_sessions",
  "headers_too_large",
  "internal",
  "engine_failed",
  "unavailable",
] as const;
export const ProblemCode = z.enum(problemCodes).meta({
  id: "ProblemCode",
  description: "Why a request was refused: a closed list, which `/docs/problems` explains.",
});
export type ProblemCode = z.infer<typeof ProblemCode>;

/** RFC 9457 problem details, the body of every error answer. */
export const Problem = z
  .object({
    type: z.string().meta({
      format: "uri-reference",
      description: "Where this kind of problem is explained.",
      example: "/docs/problems#not_found",
    }),
    code: ProblemCode,
    title: z.string().meta({ example: "Not Found" }),
    status: z.number().int().meta({ example: 404 }),
    detail: z.string().meta({ description: "What is wrong and what to do about it." }),
    correlation_id: z
      .string()
      .meta({ description: "Identifies this request in the service's log." }),
    errors: z
      .array(FieldError)
      .optional()
      .meta({ description: "On 400 and 422: every fault of the request." }),
    /** On 503: the error that an execution would have ended with. */
    error: ExecutionError.optional(),
    existing_job_id: z
      .string()
      .optional()
      .meta({ description: "On 409: the job that holds the idempotency key." }),
    quota: Quota.optional(),
    limit: z
      .int()
      .optional()
      .meta({ description: "With `quota`: what the tenant may use: bytes, seconds or jobs." }),
    used: z.number().optional().meta({ description: "With `quota`: what the tenant uses." }),
    session_id: z
      .string()
      .optional()
      .meta({ description: "The session that the refusal is about." }),
    reason: EndReason.optional(),
    job_id: z.string().optional().meta({
      description:
        "The job that the refusal is about, where it is known. On 503: the job that this request made, or may have made, before it failed.",
    }),
  })
  .meta({ id: "Problem", description: "RFC 9457 problem details." });
export type Problem = z.infer<typeof Problem>;

type ZodIssue = z.core.$ZodIssue;

/** Without this limit an answer could be many times larger than its request. */
const most = { faults: 100, pathLength: 256 };

/** The first faults that a schema found, each with the path of its field. */
export function fieldErrors(error: z.core.$ZodError): FieldError[] {
  const faults = error.issues.slice(0, most.faults).flatMap((issue) =>
    issue.code === "unrecognized_keys"
      ? issue.keys.slice(0, most.faults).map((key) => ({
          path: [...issue.path, key].join("."),
          message: "is not a field of this request",
        }))
      : [{ path: issue.path.join(".") || "(body)", message: describe(issue) }],
  );
  return faults.slice(0, most.faults).map(({ path, message }) => ({
    path: path.slice(0, most.pathLength),
    message,
  }));
}

/** Zod names the received type only in the text of its message. */
const wrongType = /^Invalid input: expected (\w+), received (\w+)$/;
/** Zod's names of types that have another name in JSON. */
const inJson: Partial<Record<string, string>> = { int: "integer", record: "object" };

function describe(issue: ZodIssue): string {
  // Zod puts the reason that a key is invalid into an issue inside this one.
  if (issue.code === "invalid_key" && issue.issues[0]) return describe(issue.issues[0]);
  const { message } = issue;
  const [, expected = "", received] = wrongType.exec(message) ?? [];
  if (received === undefined) return message;
  if (received === "undefined") return "is required";
  return `must be of type ${inJson[expected] ?? expected}, not ${received}`;
}
