import { type OpenAPIHono, z } from "@hono/zod-openapi";
import type { Problem } from "../../shared/wire/errors.ts";
import { ExecutionRecord, SyncResult } from "../../shared/wire/executions.ts";
import { limits } from "../../shared/wire/limits.ts";
import { SubmittedJob } from "../../shared/wire/submissions.ts";
import {
  type ErrorCode,
  type ErrorExtras,
  errorStatus,
  errorTitles,
  problemType,
} from "../errors.ts";
import type { AppEnv } from "./context.ts";
import {
  asEvents,
  correlationId,
  jobId,
  record,
  sessionId,
  submittedJob,
  syncResult,
} from "./examples.ts";

const text = { type: "string" } as const;
const count = { type: "integer", minimum: 0 } as const;
const etag = "b94d27b9934d3e08a52e52d7da7dabfac484efe37a5380ee9088f7ace2efcde9";

/** Every response header that the API promises. */
const responseHeaders = {
  "X-Correlation-ID": {
    description: "The correlation id: the request's own, or a new one.",
    schema: text,
    example: correlationId,
  },
  "X-Content-Type-Options": { schema: { type: "string", const: "nosniff" } },
  "X-Frame-Options": { schema: { type: "string", const: "DENY" } },
  "RateLimit-Limit": {
    description: "Requests that a window allows.",
    schema: count,
    example: 120,
  },
  "RateLimit-Remaining": {
    description: "Requests left in this window.",
    schema: count,
    example: 118,
  },
  "RateLimit-Reset": {
    description: "Seconds until the window ends.",
    schema: count,
    example: 42,
  },
  "RateLimit-Policy": {
    description: "Requests; w: length of the window in seconds.",
    schema: text,
    example: "120;w=60",
  },
  "Retry-After": {
    description: "Seconds after which the same request may succeed.",
    schema: count,
    example: 5,
  },
  "WWW-Authenticate": {
    description: "How to authenticate.",
    schema: text,
    example: 'Bearer realm="airlock"',
  },
  Location: {
    description: "The status of the new job, or the new file.",
    schema: text,
    example: `/jobs/${jobId}`,
  },
  "Preference-Applied": {
    description: "The part of `Prefer` that was followed; left out without it.",
    schema: text,
    example: "wait=10",
  },
  ETag: { description: "SHA-256 of the file, quoted.", schema: text, example: `"${etag}"` },
  "Content-Length": { description: "Bytes.", schema: count, example: 20_481 },
  "Content-Disposition": {
    description: "attachment, with the artifact's name.",
    schema: text,
    example: "attachment; filename=\"plot.png\"; filename*=UTF-8''plot.png",
  },
  "Content-Range": {
    description: "The part that was sent, or the file's size.",
    schema: text,
    example: "bytes 0-1023/20481",
  },
  "X-Accel-Buffering": { schema: { type: "string", const: "no" } },
  "X-Next-Offset": {
    description: "The offset behind the last byte that was sent.",
    schema: count,
    example: 4711,
  },
  "Accept-Ranges": { schema: { type: "string", const: "bytes" } },
} as const;
type ResponseHeader = keyof typeof responseHeaders;

/** Headers of every answer. The counts are present only if the request is counted. */
export const everywhere: ResponseHeader[] = [
  "X-Correlation-ID",
  "X-Content-Type-Options",
  "X-Frame-Options",
  "RateLimit-Limit",
  "RateLimit-Remaining",
  "RateLimit-Reset",
  "RateLimit-Policy",
];

export function registerHeaders(app: OpenAPIHono<AppEnv>): void {
  for (const [name, header] of Object.entries(responseHeaders)) {
    const required = !name.startsWith("RateLimit-") && name !== "Preference-Applied";
    app.openAPIRegistry.registerComponent("headers", name, { required, ...header });
  }
}

/** The OpenAPI description of response headers. */
export function headers(...names: ResponseHeader[]): Record<string, { $ref: string }> {
  return Object.fromEntries(names.map((name) => [name, { $ref: `#/components/headers/${name}` }]));
}

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
    detail: `Job type science was not built: ${noWheel} (log: GET /job-types/science/build; airlock build science builds again at once)`,
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
    detail: `Job type science was not built: ${noImage} (log: GET /job-types/science/build; airlock build science builds again at once)`,
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

/** One example of a body, or several with names. */
interface Shown<T> {
  example?: T;
  examples?: Record<string, { summary: string; value: T }>;
}

/** The OpenAPI description of a JSON answer. */
export function json<T extends z.ZodType>(
  schema: T,
  description: string,
  shown: Shown<z.output<T>> = {},
  ...headerNames: ResponseHeader[]
) {
  return {
    description,
    headers: headers(...headerNames),
    content: { "application/json": { schema, ...shown } },
  } as const;
}

/** The OpenAPI description of a JSON request body. */
export function body<T extends z.ZodType>(
  schema: T,
  shown: Shown<z.input<T>> = {},
  required = true,
) {
  return { body: { required, content: { "application/json": { schema, ...shown } } } } as const;
}

/**
 * The OpenAPI descriptions of an endpoint's own refusals. `describeEverywhere` adds those that follow from its access,
 * path and body.
 */
export function problems(...codes: ErrorCode[]): Record<number, { $ref: string }> {
  return Object.fromEntries(codes.map((code) => [errorStatus[code], problemRef(code)]));
}

/** Descriptions that all downloads of a file share. */

const ifNoneMatch = z
  .string()
  .optional()
  .openapi({ description: "ETags that the client has, or `*`." });

const headHeaders = z.object({ "If-None-Match": ifNoneMatch });

const downloadHeaders = z.object({
  "If-None-Match": ifNoneMatch,
  Range: z.string().optional().openapi({ description: "Such as `bytes=0-1023`." }),
  "If-Range": z
    .string()
    .optional()
    .openapi({ description: "An ETag; `Range` applies only if it is current." }),
});

const ofFile: ResponseHeader[] = ["ETag", "Content-Length", "Content-Disposition", "Accept-Ranges"];
export const bytes = z.string().openapi({ format: "binary" });
const unchanged = {
  description: "If-None-Match has the current ETag: the file is unchanged.",
  headers: headers("ETag"),
};

const downloads = {
  200: {
    description: "The file, under its own Content-Type.",
    headers: headers(...ofFile),
    content: { "*/*": { schema: bytes } },
  },
  206: {
    description: "The part of the file that `Range` asked for.",
    headers: headers(...ofFile, "Content-Range"),
    content: { "*/*": { schema: bytes } },
  },
  304: unchanged,
  416: problemRef("range_not_satisfiable"),
};

const heads = {
  200: { description: "The headers of the download.", headers: headers(...ofFile) },
  304: unchanged,
};

type Path = Parameters<OpenAPIHono<AppEnv>["openAPIRegistry"]["registerPath"]>[0];

/** Describes a download and its HEAD. Its route may accept names with slashes, which OpenAPI paths cannot express. */
export function describeDownload(
  { openAPIRegistry }: OpenAPIHono<AppEnv>,
  { request, responses, ...shared }: Pick<Path, "path" | "description" | "request" | "responses">,
  words: Record<"get" | "head", Pick<Path, "operationId" | "summary">>,
): void {
  for (const method of ["get", "head"] as const) {
    const [headers, answers] =
      method === "get" ? [downloadHeaders, downloads] : [headHeaders, heads];
    openAPIRegistry.registerPath({
      method,
      ...shared,
      ...words[method],
      request: { ...request, headers },
      responses: { ...answers, ...responses },
    });
  }
}

/** Descriptions that all requests that run code share. */

/** A request that waits for the end. */
export function runAnswers(ended: string) {
  const answer = json(SyncResult, ended, { example: syncResult });
  return {
    200: { ...answer, content: { ...answer.content, ...asEvents } },
    429: tooManyStreams,
  };
}

/** A request that is answered once it is stored. */
export function queuedAnswers(ended: string, queued: string) {
  const shown = { example: record };
  return {
    200: json(
      ExecutionRecord,
      `With \`Prefer: wait=N\`: ${ended}`,
      shown,
      "Location",
      "Preference-Applied",
    ),
    202: json(SubmittedJob, queued, { example: submittedJob }, "Location"),
  };
}

export const idParam = (description: string, example: string) =>
  z.object({
    id: z
      .string()
      .openapi({ param: { name: "id", in: "path" }, format: "uuid", description, example }),
  });

export const jobIdParam = idParam("The `job_id` from the answer to the submission.", jobId);

const plain = /^-?(0|[1-9][0-9]{0,15})$/;

/** A number in a path; undefined for every spelling other than the service's own. */
export function plainNumber(text: string): number | undefined {
  return plain.test(text) && Number(text) > 0 ? Number(text) : undefined;
}

/** A whole number in its one spelling: 1.0, 01, 1e0, +1 and an empty text are refused. */
const plainText = z.string().regex(plain, "must be a whole number, in digits");

/** A whole number in a query. Its schema is explicit, because the generator thinks that a coerced number accepts null. */
export function integerQuery(
  range: { minimum: number; maximum: number; default: number },
  description: string,
) {
  return plainText
    .pipe(z.coerce.number<string>().int().min(range.minimum).max(range.maximum))
    .default(range.default)
    .openapi({ type: "integer", ...range, description });
}

export const pageQuery = {
  limit: integerQuery(
    { minimum: 1, maximum: limits.listLimitMax, default: limits.listLimitDefault },
    "Items in a page, at most.",
  ),
  offset: integerQuery(
    { minimum: 0, maximum: Number.MAX_SAFE_INTEGER, default: 0 },
    "Items to leave out first.",
  ),
};

export const booleanQuery = (description: string) =>
  z.stringbool().default(false).openapi({ type: "boolean", default: false, description });

/** The number of the last item of the previous page. */
export const beforeQuery = (description: string) =>
  plainText
    .pipe(z.coerce.number<string>().int().min(1))
    .optional()
    .openapi({ type: "integer", minimum: 1, description });

export const viewQuery = z.enum(["full", "all"]).optional().openapi({
  description:
    "`full` adds the extended fields. `all` also adds every attempt and the rest of the submission.",
});

/** The header Prefer of a request that is answered once it is stored. */
export const prefer = z.string().optional().openapi({
  description:
    "`wait=N`: wait up to N seconds for the end, then answer 200 with the record, else 202 as ever (RFC 7240).",
  example: "wait=10",
});
