import type { Problem } from "../../../shared/wire/errors.ts";
import {
  type ErrorCode,
  type ErrorExtras,
  errorStatus,
  errorTitles,
  problemType,
} from "../../errors.ts";
import { correlationId, jobId, sessionId } from "../examples/jobs.ts";
import { everywhere, headers, type ResponseHeader } from "./headers.ts";

const noAgent = "No agent is connected. Start one (npm run agent), or submit to /execute/async.";
const noWheel = "ERROR: No matching distribution found for numpy==9.9";
const noImage =
  "Image registry.example/science:1 is not on the agent's host and cannot be pulled: no such host";

/** Example texts of refusals, by code. */
const said: Record<ErrorCode, { detail: string } & ErrorExtras> = {
  invalid_request: {
    detail: "The request is not valid: code: is required",
    errors: [{ path: "code", message: "is required" }],
  },
  unauthorized: {
    detail: "Send an API key in the header X-API-Key, or as Authorization: Bearer.",
  },
  forbidden: {
    detail:
      "This needs the scope run: use a key that has it, such as one of operator_keys, or one that npm run keys makes with --scopes run.",
  },
  method_not_allowed: { detail: "PUT is not a method of /jobs; see Allow." },
  not_found: { detail: `Job ${jobId} does not exist.` },
  wait_timeout: { detail: `Job ${jobId} did not end within 30 s; ask again.` },
  conflict: { detail: `Job ${jobId} has already finished: succeeded.` },
  session_ended: {
    detail: `Session ${sessionId} has ended (idle): make a new one.`,
    session_id: sessionId,
    reason: "idle",
  },
  lease_lost: { detail: "The lease no longer holds; drop the work." },
  length_required: { detail: "Send the file's size as Content-Length." },
  too_large: { detail: "The body is larger than 10485760 bytes (max_request_bytes)." },
  unsupported_encoding: {
    detail: "Content-Encoding: gzip is not read: send the body as it is, without this header.",
  },
  range_not_satisfiable: { detail: "The artifact has 20481 bytes." },
  timeout_too_long: {
    detail: "timeout: 7200 s is above the configured max_timeout of 3600 s.",
    errors: [{ path: "timeout", message: "must be at most 3600" }],
  },
  language_unavailable: {
    detail: 'language: job type default has no language "perk": did you mean "perl"?',
    errors: [{ path: "language", message: "must be one of: bash, c, cpp, go, perl, python" }],
  },
  batch_too_large: {
    detail:
      "An atomic batch of 500 jobs can never be accepted: the queue holds 100 (max_queue_size).",
  },
  files_too_large: {
    detail: "No connected agent mounts files, which the job needs because its files are large.",
  },
  build_failed: {
    detail: `Job type science was not built: ${noWheel} (log: GET /job-types/science/build)`,
    error: { type: "dependency_error", message: noWheel, phase: "startup" },
  },
  rate_limited: {
    detail: "More than 120 requests in 60 s; wait for the seconds that Retry-After says.",
  },
  quota_exceeded: {
    detail: "Tenant search has 1000 waiting jobs (max_queued 1000); wait until some have run.",
    quota: "max_queued",
    limit: 1000,
    used: 1000,
  },
  too_many_sessions: {
    detail: "Tenant search has 100 sessions (max_sessions_per_tenant 100): end one first.",
  },
  headers_too_large: { detail: "The request's address and headers are too long." },
  internal: {
    detail: "Something went wrong; the service's log has more under the correlation id.",
  },
  engine_failed: {
    detail: `Job type science was not built: ${noImage} (log: GET /job-types/science/build)`,
    error: { type: "docker_error", message: noImage, phase: "startup" },
  },
  unavailable: {
    detail: noAgent,
    error: { type: "service_unavailable", message: noAgent, phase: "startup" },
  },
};

const headersOf: Partial<Record<ErrorCode, ResponseHeader[]>> = {
  unauthorized: ["WWW-Authenticate"],
  rate_limited: ["Retry-After"],
  quota_exceeded: ["Retry-After"],
  too_many_sessions: ["Retry-After"],
  unavailable: ["Retry-After"],
  range_not_satisfiable: ["Content-Range"],
};

/** The OpenAPI description of a refusal, with the endpoint's own example if it has one. */
export function problem(code: ErrorCode, own: { detail?: string } & ErrorExtras = {}) {
  const example: Problem = {
    type: problemType(code),
    code,
    title: errorTitles[code],
    status: errorStatus[code],
    correlation_id: correlationId,
    ...said[code],
    ...own,
  };
  return {
    description: errorTitles[code],
    headers: headers(...everywhere, ...(headersOf[code] ?? [])),
    content: {
      "application/problem+json": { schema: { $ref: "#/components/schemas/Problem" }, example },
    },
  };
}

/** The refusal of an idempotency key, by every endpoint that makes jobs. */
export const keyConflictAnswer = problem("conflict", {
  detail: `The idempotency key was used with a different payload, for job ${jobId}. Use a new key.`,
  existing_job_id: jobId,
  job_id: jobId,
});

/** The refusal of an event stream. It is possible even if requests are not rate limited. */
export const tooManyStreams = problem("rate_limited", {
  detail:
    "1000 event streams of this API key are open (max_event_streams): close some, or poll GET /jobs/{id}/logs.",
});

/** The description of a refusal that all endpoints share. */
export function problemRef(code: ErrorCode): { $ref: string } {
  return { $ref: `#/components/responses/${nameOf(code)}` };
}

/** The shared refusals that a description refers to. */
export function sharedProblems(paths: object): Record<string, ReturnType<typeof problem>> {
  const text = JSON.stringify(paths);
  const used = (Object.keys(errorStatus) as ErrorCode[]).filter((code) =>
    text.includes(`"${problemRef(code).$ref}"`),
  );
  return Object.fromEntries(used.map((code) => [nameOf(code), problem(code)]));
}

function nameOf(code: ErrorCode): string {
  return errorTitles[code].replaceAll(" ", "");
}
