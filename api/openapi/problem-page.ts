import { type ErrorCode, errorStatus, errorTitles } from "../errors.ts";

/** What each code of a refusal means, and what a client does about it. */
const meanings: Record<ErrorCode, string> = {
  invalid_request:
    "The request is malformed, or a field is wrong: <code>errors</code> has the path of each field. Send a corrected request.",
  unauthorized:
    "The API key is missing or wrong. Send one of the configured keys, or one that an operator made.",
  forbidden: "The caller may not do this, whatever key it sends: <code>detail</code> says why.",
  not_found: "The path, job, artifact or job type does not exist, or was removed.",
  method_not_allowed: "The path exists, but not for this method: <code>Allow</code> lists those.",
  wait_timeout: "The wait is over before the job has ended. The job goes on: ask again.",
  conflict:
    "The state does not allow this: the idempotency key has another payload (use a new key), or the job has ended or has not ended yet.",
  session_ended:
    "The session has ended, for the <code>reason</code> that the answer names: its variables and files are gone. Make a new session.",
  lease_lost: "For agents: the lease no longer holds.",
  length_required:
    "The size of a file must be known before its bytes: send <code>Content-Length</code>.",
  too_large: "The body is too large. Send less, or raise the limit that <code>detail</code> names.",
  unsupported_encoding:
    "Bodies are read as they are: send this one without <code>Content-Encoding</code>.",
  range_not_satisfiable: "The file has no byte of this <code>Range</code>.",
  timeout_too_long:
    "The <code>timeout</code> is above the configured <code>max_timeout</code>, or the <code>lifetime</code> of a session above <code>max_session_lifetime</code>.",
  language_unavailable:
    "The job type has no such <code>language</code>. Use one that <code>errors</code> names, or send a <code>command</code>.",
  batch_too_large:
    "An atomic batch is larger than the queue, or than a limit of the tenant. Send smaller batches, or have the limit raised that <code>detail</code> names.",
  files_too_large:
    "The files are larger than a quarter of the job's memory limit, and no agent mounts files. Send less, raise <code>memory_limit</code>, or connect an agent that forks jobs.",
  build_failed: "The image was not built because of what the job type asks for.",
  rate_limited: "Too many requests. Wait for the seconds that <code>Retry-After</code> says.",
  quota_exceeded:
    "The tenant has reached its limit <code>quota</code>, as <code>GET /usage</code> shows. Nothing was stored. Send the request again after <code>Retry-After</code>, or have the limit raised.",
  too_many_sessions:
    "The tenant has as many sessions as it may have at once. End one, or raise <code>max_sessions_per_tenant</code>.",
  headers_too_large: "The address and the headers are too long.",
  internal: "A fault of the service. Its log has more under the <code>correlation_id</code>.",
  engine_failed: "The image was not built because of the container engine.",
  unavailable:
    "The service cannot take the request now. Send it again after <code>Retry-After</code>; if <code>job_id</code> names a job, look at that job first.",
};

const sections = (Object.keys(errorStatus) as ErrorCode[]).map(
  (code) =>
    `<h2 id="${code}"><code>${code}</code></h2>\n<p>${errorStatus[code]} ${errorTitles[code]}. ${meanings[code]}</p>`,
);

/** The page that the `type` of every problem points to. */
export const problemPage = `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Airlock: problems</title>
</head>
<body>
<h1>Problems</h1>
<p>Every refused request is answered with problem details (RFC 9457). Programs decide by <code>code</code>.</p>
${sections.join("\n")}
</body>
</html>
`;
