// Written by `npm run docs`. It does not compile with exactOptionalPropertyTypes.
// @ts-nocheck
/**
 * Airlock
 * 0.1.0
 * DO NOT MODIFY - This file has been generated using oazapfts.
 * See https://www.npmjs.com/package/oazapfts
 */
import * as Oazapfts from "@oazapfts/runtime";
import * as QS from "@oazapfts/runtime/query";
export const defaults: Oazapfts.Defaults<Oazapfts.CustomHeaders> = {
    headers: {},
    baseUrl: "/"
};
const oazapfts = Oazapfts.runtime(defaults);
export const servers = {};
export type ArtifactOfJob = {
    job_id: string;
    name: string;
};
export type InputFile = {
    /** Its path under /input: a relative path, as of an artifact. `data.json` and names that begin with `_` are taken. */
    name: string;
    /** Its content, stored as UTF-8. */
    text?: string | undefined;
    /** Its content in base64. */
    base64?: string | undefined;
    /** A file sent to `POST /files`. */
    file_id?: string | undefined;
    artifact?: ArtifactOfJob | undefined;
};
export type ExecuteRequest = {
    /** Python source, run as /code/main.py. */
    code: string;
    /** Written to /input/data.json. */
    input_data?: {
        [key: string]: unknown;
    } | undefined;
    /** Time limit of the code in seconds, without start-up. Default: the job type's, else `default_timeout`. At most the configured `max_timeout`. */
    timeout?: number | undefined;
    /** Seconds for container creation and dependency install. */
    startup_timeout?: number | undefined;
    job_type?: string | undefined;
    /** Packages for this job by name and version (PEP 508), installed before the code runs; wheels only. Honoured only with `allow_runtime_requirements`. */
    requirements?: string[] | undefined;
    /** Files that the code finds at /input/<name>, read-only. Above a quarter of the job's memory limit together, the job needs an agent that mounts files. */
    files?: InputFile[] | undefined;
    /** The same key with the same payload returns the same job, from every request that makes a job. Keys of different API keys are different keys. */
    idempotency_key?: string | undefined;
    /** What the code reads from its standard input, as UTF-8. Without it, the standard input is at its end. */
    stdin?: string | undefined;
    /** The arguments of the code: `sys.argv[1:]`. */
    args?: string[] | undefined;
    /** The client's own words about the job. Its record has them, and lists can be filtered by them. */
    metadata?: {
        [key: string]: string;
    } | undefined;
    /** The job waits until then. It takes a place in the queue meanwhile. A time in the past is now. */
    run_at?: string | undefined;
    /** Seconds that the job may wait for its start, from `run_at` or its submission on. If no agent has taken it by then, it ends as `timeout`. */
    queue_timeout?: number | undefined;
    /** 1: the code never starts twice, for code with side effects; if its agent is lost, the job fails. Default 2. A try that ended before the code started is not counted, but there are two at most. */
    max_attempts?: number | undefined;
    /** Called when the job has ended, as docs/guides/webhooks.md says. Its host must be one of `webhook_callbacks.hosts`. Reruns and forks do not inherit it. */
    callback_url?: string | undefined;
};
export type ExecutionErrorType = "timeout" | "startup_timeout" | "execution_timeout" | "oom" | "cancelled" | "segfault" | "abort" | "arithmetic_error" | "bus_error" | "pipe_error" | "killed" | "syntax_error" | "import_error" | "type_error" | "value_error" | "key_error" | "index_error" | "attribute_error" | "name_error" | "file_not_found" | "file_error" | "os_error" | "recursion_error" | "assertion_error" | "division_error" | "overflow_error" | "encoding_error" | "json_error" | "permission" | "dependency_error" | "network_error" | "network_timeout" | "docker_error" | "service_unavailable" | "config_error" | "internal_error" | "runtime_error" | "unknown";
export type ExecutionPhase = "startup" | "execution";
export type ExecutionError = {
    "type": ExecutionErrorType;
    message: string;
    phase: ExecutionPhase;
};
export type SyncResult = {
    /** The run finished without error. */
    success: boolean;
    /** Parsed /output/result.json. */
    output: {
        [key: string]: unknown;
    } | null;
    stdout: string;
    stderr: string;
    exit_code: number | null;
    /** Wall clock seconds. */
    execution_time: number;
    error: ExecutionError | null;
    job_type: string;
    /** Id of the execution's record and artifacts. */
    job_id: string;
    /** What of the request or of /output was left out without an error: `requirements` that the service does not install, files that cannot be artifacts. Left out where there is none. */
    warnings?: string[] | undefined;
};
export type AsyncSubmitRequest = {
    /** Python source, run as /code/main.py. */
    code: string;
    /** Written to /input/data.json. */
    input_data?: {
        [key: string]: unknown;
    } | undefined;
    /** Time limit of the code in seconds, without start-up. Default: the job type's, else `default_timeout`. At most the configured `max_timeout`. */
    timeout?: number | undefined;
    /** Seconds for container creation and dependency install. */
    startup_timeout?: number | undefined;
    job_type?: string | undefined;
    /** Packages for this job by name and version (PEP 508), installed before the code runs; wheels only. Honoured only with `allow_runtime_requirements`. */
    requirements?: string[] | undefined;
    /** Files that the code finds at /input/<name>, read-only. Above a quarter of the job's memory limit together, the job needs an agent that mounts files. */
    files?: InputFile[] | undefined;
    /** The same key with the same payload returns the same job, from every request that makes a job. Keys of different API keys are different keys. */
    idempotency_key?: string | undefined;
    /** What the code reads from its standard input, as UTF-8. Without it, the standard input is at its end. */
    stdin?: string | undefined;
    /** The arguments of the code: `sys.argv[1:]`. */
    args?: string[] | undefined;
    /** The client's own words about the job. Its record has them, and lists can be filtered by them. */
    metadata?: {
        [key: string]: string;
    } | undefined;
    /** The job waits until then. It takes a place in the queue meanwhile. A time in the past is now. */
    run_at?: string | undefined;
    /** Seconds that the job may wait for its start, from `run_at` or its submission on. If no agent has taken it by then, it ends as `timeout`. */
    queue_timeout?: number | undefined;
    /** 1: the code never starts twice, for code with side effects; if its agent is lost, the job fails. Default 2. A try that ended before the code started is not counted, but there are two at most. */
    max_attempts?: number | undefined;
    /** Called when the job has ended, as docs/guides/webhooks.md says. Its host must be one of `webhook_callbacks.hosts`. Reruns and forks do not inherit it. */
    callback_url?: string | undefined;
};
export type ExecutionStatus = "queued" | "running" | "succeeded" | "failed" | "timeout" | "oom" | "cancelled";
export type PhaseAtExit = "startup" | "execution" | "completed" | "failed";
export type Timing = {
    /** Container start plus dependency install. */
    startup_ms: number;
    /** The part of start-up spent installing. */
    dep_install_ms: number;
    /** Time of the submitted code. */
    execution_ms: number;
    /** From the agent taking the job to the end of collecting its output. */
    total_ms: number;
    phase_at_exit: PhaseAtExit;
};
export type Artifact = {
    name: string;
    size_bytes: number;
    sha256: string;
    content_type: string;
};
export type ResourceUsage = {
    /** MiB; largest resident memory of one process, Python's own included, without files in /tmp. */
    max_rss_mb: number;
    /** CPU time of all processes and threads. */
    cpu_time_ms: number;
    /** Time of the submitted code. */
    wall_time_ms: number;
};
export type Relationship = "rerun" | "fork";
export type SubmissionMode = "sync" | "async";
export type AttemptOutcome = "result" | "released" | "agent_stopped" | "agent_crashed" | "lease_expired";
export type Attempt = {
    /** Which try it was. The next one has the same number if an agent that stopped had not begun. */
    attempt: number;
    /** Which start of an agent had the job. */
    agent_id: string;
    /** Name of the agent; null if the service no longer knows it. */
    agent: string | null;
    /** When the agent got the job. */
    claimed_at: string;
    /** When the agent said that the code had begun. Agents do not say it of code that ends within 50 ms. */
    code_started_at: string | null;
    ended_at: string | null;
    /** Null while it runs, or if a version that kept no attempts ended it. */
    outcome: AttemptOutcome | null;
    error: ExecutionError | null;
};
export type ExecutionRecord = {
    execution_id: string;
    status: ExecutionStatus;
    job_type: string;
    job_version: string;
    created_at: string;
    started_at: string | null;
    ended_at: string | null;
    duration_ms: number | null;
    exit_code: number | null;
    stdout: string;
    stderr: string;
    output: {
        [key: string]: unknown;
    } | null;
    error: ExecutionError | null;
    timing: Timing | null;
    /** As submitted; left out where there is none. */
    metadata?: {
        [key: string]: string;
    } | undefined;
    /** What of the request or of /output was left out without an error: `requirements` that the service does not install, files that cannot be artifacts. Left out where there is none. */
    warnings?: string[] | undefined;
    /** Left out where there is none. */
    batch_id?: string | undefined;
    job_ref?: (string | null) | undefined;
    /** How the code got its sandbox; absent for a container of its own. */
    container_backend?: ("engine" | "zygote") | undefined;
    /** Runtime of the container engine that ran the code; null if none did. */
    container_runtime?: (string | null) | undefined;
    artifacts?: Artifact[] | undefined;
    input_artifacts?: Artifact[] | undefined;
    resource_usage?: (ResourceUsage | null) | undefined;
    /** SHA-256 of the code. */
    code_hash?: string | undefined;
    /** SHA-256 of the input data. */
    input_hash?: string | undefined;
    parent_execution_id?: (string | null) | undefined;
    relationship?: (Relationship | null) | undefined;
    stdout_truncated?: boolean | undefined;
    stderr_truncated?: boolean | undefined;
    idempotency_key?: (string | null) | undefined;
    /** As submitted. Like the fields below, it is left out where it was not given. */
    stdin?: string | undefined;
    args?: string[] | undefined;
    run_at?: string | undefined;
    queue_timeout?: number | undefined;
    max_attempts?: number | undefined;
    callback_url?: string | undefined;
    /** The W3C trace context of the request that made the job. */
    traceparent?: string | undefined;
    /** How many times an agent has taken the job. This field and those below it are only in a record with `view=all`. */
    attempt?: number | undefined;
    /** Identifies the request that made the job in the service's log. */
    correlation_id?: string | undefined;
    mode?: SubmissionMode | undefined;
    /** Time limit of the code in seconds. */
    timeout?: number | undefined;
    startup_timeout?: number | undefined;
    requirements?: string[] | undefined;
    /** Every attempt, the last or running one included; of more than 20 that were lost, the latest. */
    attempts?: Attempt[] | undefined;
};
export type SubmittedJob = {
    job_id: string;
    status: ExecutionStatus;
    created_at: string;
    /** 1 is next; 0 once running. */
    queue_position: number;
    /** Why a queued job waits, if it waits for more than its turn. */
    message?: string | undefined;
    correlation_id: string;
};
export type BatchRequest = {
    /** Submissions, each as for `POST /execute/async`. In a batch that is not atomic, each is accepted or refused by itself. */
    jobs: AsyncSubmitRequest[];
    /** Accept all jobs or none. */
    atomic?: boolean | undefined;
    /** A repeat of the whole batch with this key gets the same batch. It is no key of a job. */
    idempotency_key?: string | undefined;
};
export type ProblemCode = "invalid_request" | "unauthorized" | "forbidden" | "not_found" | "method_not_allowed" | "wait_timeout" | "conflict" | "lease_lost" | "length_required" | "too_large" | "range_not_satisfiable" | "timeout_too_long" | "batch_too_large" | "files_too_large" | "build_failed" | "rate_limited" | "headers_too_large" | "internal" | "engine_failed" | "unavailable";
export type FieldError = {
    /** Dotted path of the field. */
    path: string;
    message: string;
};
export type Problem = {
    /** Where this kind of problem is explained. */
    "type": string;
    code: ProblemCode;
    title: string;
    status: number;
    /** What is wrong and what to do about it. */
    detail: string;
    /** Identifies this request in the service's log. */
    correlation_id: string;
    /** On 400 and 422: every fault of the request. */
    errors?: FieldError[] | undefined;
    error?: ExecutionError | undefined;
    /** On 409: the job that holds the idempotency key. */
    existing_job_id?: string | undefined;
    /** The job that the refusal is about, where it is known. On 503: the job that this request made, or may have made, before it failed. */
    job_id?: string | undefined;
};
export type SubmittedBatch = {
    batch_id: string;
    created_at: string;
    /** The answer for each job, in the order of the request: as from `POST /execute/async`, or why it was refused. A job that had its idempotency key before is shown, but is no member of the batch. */
    jobs: (SubmittedJob | Problem)[];
};
export type BatchCounts = {
    queued?: number | undefined;
    running?: number | undefined;
    succeeded?: number | undefined;
    failed?: number | undefined;
    timeout?: number | undefined;
    oom?: number | undefined;
    cancelled?: number | undefined;
};
export type Batch = {
    batch_id: string;
    created_at: string;
    /** Members; a removed execution does not count. */
    total: number;
    /** Every member has ended. */
    finished: boolean;
    counts: BatchCounts;
};
export type UploadedFile = {
    /** For `files` of a request that makes a job. */
    file_id: string;
    name: string;
    size_bytes: number;
    sha256: string;
    content_type: string;
    created_at: string;
    /** It is kept until then, and longer while a record refers to it. */
    expires_at: string;
};
export type FilePage = {
    items: UploadedFile[];
    limit: number;
    offset: number;
    has_more: boolean;
    /** Items in this response. */
    count: number;
};
export type FileDeleted = {
    file_id: string;
    deleted: true;
};
export type JobStatus = {
    job_id: string;
    status: ExecutionStatus;
    created_at: string;
    started_at: string | null;
    /** Why a queued job waits. */
    message?: string | undefined;
    cancel_requested?: boolean | undefined;
};
export type QueueStatus = "pending" | "running" | "completed";
export type InProgressResult = {
    job_id: string;
    status: QueueStatus;
    message: string;
    /** 1 is next; 0 once running. */
    queue_position: number;
};
export type RerunRequest = {
    job_type?: string | undefined;
    /** Time limit of the code in seconds, without start-up. Default: the job type's, else `default_timeout`. At most the configured `max_timeout`. */
    timeout?: number | undefined;
    /** The same key with the same payload returns the same job, from every request that makes a job. Keys of different API keys are different keys. */
    idempotency_key?: string | undefined;
    /** What the code reads from its standard input, as UTF-8. Without it, the standard input is at its end. */
    stdin?: string | undefined;
    /** The arguments of the code: `sys.argv[1:]`. */
    args?: string[] | undefined;
    /** The client's own words about the job. Its record has them, and lists can be filtered by them. */
    metadata?: {
        [key: string]: string;
    } | undefined;
    /** The job waits until then. It takes a place in the queue meanwhile. A time in the past is now. */
    run_at?: string | undefined;
    /** Seconds that the job may wait for its start, from `run_at` or its submission on. If no agent has taken it by then, it ends as `timeout`. */
    queue_timeout?: number | undefined;
    /** 1: the code never starts twice, for code with side effects; if its agent is lost, the job fails. Default 2. A try that ended before the code started is not counted, but there are two at most. */
    max_attempts?: number | undefined;
    /** Called when the job has ended, as docs/guides/webhooks.md says. Its host must be one of `webhook_callbacks.hosts`. Reruns and forks do not inherit it. */
    callback_url?: string | undefined;
};
export type DerivedJob = {
    job_id: string;
    status: ExecutionStatus;
    created_at: string;
    /** 1 is next; 0 once running. */
    queue_position: number;
    /** Why a queued job waits, if it waits for more than its turn. */
    message?: string | undefined;
    correlation_id: string;
    parent_execution_id: string;
    relationship: Relationship;
};
export type ForkRequest = {
    /** Python source, run as /code/main.py. */
    code: string;
    job_type?: string | undefined;
    /** Time limit of the code in seconds, without start-up. Default: the job type's, else `default_timeout`. At most the configured `max_timeout`. */
    timeout?: number | undefined;
    /** The same key with the same payload returns the same job, from every request that makes a job. Keys of different API keys are different keys. */
    idempotency_key?: string | undefined;
    /** What the code reads from its standard input, as UTF-8. Without it, the standard input is at its end. */
    stdin?: string | undefined;
    /** The arguments of the code: `sys.argv[1:]`. */
    args?: string[] | undefined;
    /** The client's own words about the job. Its record has them, and lists can be filtered by them. */
    metadata?: {
        [key: string]: string;
    } | undefined;
    /** The job waits until then. It takes a place in the queue meanwhile. A time in the past is now. */
    run_at?: string | undefined;
    /** Seconds that the job may wait for its start, from `run_at` or its submission on. If no agent has taken it by then, it ends as `timeout`. */
    queue_timeout?: number | undefined;
    /** 1: the code never starts twice, for code with side effects; if its agent is lost, the job fails. Default 2. A try that ended before the code started is not counted, but there are two at most. */
    max_attempts?: number | undefined;
    /** Called when the job has ended, as docs/guides/webhooks.md says. Its host must be one of `webhook_callbacks.hosts`. Reruns and forks do not inherit it. */
    callback_url?: string | undefined;
};
export type ArtifactList = {
    job_id: string;
    /** Files that the code wrote, by name. */
    artifacts: Artifact[];
    /** What was submitted. */
    input_artifacts: Artifact[];
};
export type ExecutionPage = {
    items: ExecutionRecord[];
    limit: number;
    offset: number;
    has_more: boolean;
    /** Items in this response. */
    count: number;
};
export type NarrowedRecord = {
    execution_id: string;
    status?: ExecutionStatus | undefined;
    job_type?: string | undefined;
    job_version?: string | undefined;
    created_at?: string | undefined;
    started_at?: (string | null) | undefined;
    ended_at?: (string | null) | undefined;
    duration_ms?: (number | null) | undefined;
    exit_code?: (number | null) | undefined;
    stdout?: string | undefined;
    stderr?: string | undefined;
    output?: ({
        [key: string]: unknown;
    } | null) | undefined;
    error?: (ExecutionError | null) | undefined;
    timing?: (Timing | null) | undefined;
    /** As submitted; left out where there is none. */
    metadata?: {
        [key: string]: string;
    } | undefined;
    /** What of the request or of /output was left out without an error: `requirements` that the service does not install, files that cannot be artifacts. Left out where there is none. */
    warnings?: string[] | undefined;
    /** Left out where there is none. */
    batch_id?: string | undefined;
    job_ref?: (string | null) | undefined;
    /** How the code got its sandbox; absent for a container of its own. */
    container_backend?: ("engine" | "zygote") | undefined;
    /** Runtime of the container engine that ran the code; null if none did. */
    container_runtime?: (string | null) | undefined;
    artifacts?: Artifact[] | undefined;
    input_artifacts?: Artifact[] | undefined;
    resource_usage?: (ResourceUsage | null) | undefined;
    /** SHA-256 of the code. */
    code_hash?: string | undefined;
    /** SHA-256 of the input data. */
    input_hash?: string | undefined;
    parent_execution_id?: (string | null) | undefined;
    relationship?: (Relationship | null) | undefined;
    stdout_truncated?: boolean | undefined;
    stderr_truncated?: boolean | undefined;
    idempotency_key?: (string | null) | undefined;
    /** As submitted. Like the fields below, it is left out where it was not given. */
    stdin?: string | undefined;
    args?: string[] | undefined;
    run_at?: string | undefined;
    queue_timeout?: number | undefined;
    max_attempts?: number | undefined;
    callback_url?: string | undefined;
    /** The W3C trace context of the request that made the job. */
    traceparent?: string | undefined;
    /** How many times an agent has taken the job. This field and those below it are only in a record with `view=all`. */
    attempt?: number | undefined;
    /** Identifies the request that made the job in the service's log. */
    correlation_id?: string | undefined;
    mode?: SubmissionMode | undefined;
    /** Time limit of the code in seconds. */
    timeout?: number | undefined;
    startup_timeout?: number | undefined;
    requirements?: string[] | undefined;
    /** Every attempt, the last or running one included; of more than 20 that were lost, the latest. */
    attempts?: Attempt[] | undefined;
};
export type NarrowedPage = {
    items: NarrowedRecord[];
    limit: number;
    offset: number;
    has_more: boolean;
    /** Items in this response. */
    count: number;
};
export type ExecutionList = ExecutionPage | NarrowedPage;
export type ExecutionDeleted = {
    execution_id: string;
    deleted: true;
};
export type JobType = {
    name: string;
    /** Packages that a build installs into the image. */
    requirements: string[];
    /** Python version of the built image; before a build, of the image that it starts from. */
    python_version: string;
    memory_limit: string;
    /** CPU limit: number of CPUs. */
    cpu_limit: number;
    /** Seconds; default timeout of its jobs. */
    timeout: number;
    /** Whether a connected agent has the image that jobs of this type run on: the built image, or the base image if there is nothing to install. */
    image_exists: boolean;
};
export type JobTypeList = JobType[];
export type BuildResult = {
    status: "built";
    job_type: string;
    /** `<job_type>@sha256:<digest>`: the `job_ref` in the records of its jobs. */
    version: string;
    digest: string;
    image_ref: string;
};
export type BuildStatus = "queued" | "running" | "built" | "failed";
export type Build = {
    status: BuildStatus;
    job_type: string;
    image_ref: string;
    /** `<job_type>@sha256:<digest>`: the `job_ref` in the records of its jobs. */
    version: string | null;
    digest: string | null;
    error: ExecutionError | null;
    created_at: string;
    started_at: string | null;
    ended_at: string | null;
    /** Output of the build so far; at most 1 MiB. */
    log: string;
};
export type DeadLetterJob = {
    code: string;
    input_data: {
        [key: string]: unknown;
    };
    job_type: string;
};
export type DeadLetter = {
    id: number;
    job_id: string;
    job_data: DeadLetterJob;
    error_type: ExecutionErrorType;
    error_message: string;
    /** Attempts after the first. */
    retry_count: number;
    created_at: string;
    client_ip: string;
    correlation_id: string;
};
export type DeadLetterPage = {
    items: DeadLetter[];
    limit: number;
    offset: number;
    has_more: boolean;
    /** Items in this response. */
    count: number;
};
export type DeadLetterStats = {
    total: number;
    by_error_type: {
        [key: string]: number;
    };
    oldest_created_at: string | null;
};
export type DeadLetterDeleted = {
    id: number;
    deleted: true;
};
export type DeliveryStatus = "pending" | "delivered" | "failed";
export type WebhookType = "execution.succeeded" | "execution.failed" | "execution.timeout" | "execution.oom" | "execution.cancelled";
export type WebhookDelivery = {
    id: number;
    /** The header `webhook-id` of every call: the same for all receivers and tries. */
    webhook_id: string;
    "type": WebhookType;
    job_id: string;
    /** Name of the configured receiver; null for a `callback_url`. */
    endpoint: string | null;
    callback_url: string | null;
    status: DeliveryStatus;
    /** Calls that were made. */
    attempts: number;
    /** HTTP status of the last answer. */
    last_status_code: number | null;
    /** Why the last call failed. */
    last_error: string | null;
    created_at: string;
    next_attempt_at: string | null;
    ended_at: string | null;
};
export type WebhookDeliveryPage = {
    items: WebhookDelivery[];
    limit: number;
    has_more: boolean;
    /** Items in this response. */
    count: number;
};
export type WebhookError = {
    "type": ExecutionErrorType;
    phase: ExecutionPhase;
};
export type WebhookLinks = {
    record: string;
    result: string;
};
export type WebhookData = {
    job_id: string;
    status: "succeeded" | "failed" | "timeout" | "oom" | "cancelled";
    job_type: string;
    /** Attempts that were made; 0 if it never started. */
    attempt: number;
    created_at: string;
    started_at: string | null;
    ended_at: string;
    exit_code: number | null;
    error: WebhookError | null;
    correlation_id: string;
    metadata?: {
        [key: string]: string;
    } | undefined;
    batch_id?: string | undefined;
    parent_execution_id?: string | undefined;
    relationship?: Relationship | undefined;
    traceparent?: string | undefined;
    links: WebhookLinks;
};
export type WebhookEvent = {
    "type": WebhookType;
    /** When the execution ended. */
    timestamp: string;
    data: WebhookData;
};
export type WebhookMessage = {
    /** What the header `webhook-id` of a call with this event says. */
    webhook_id: string;
    event: WebhookEvent;
};
export type WebhookEventPage = {
    /** Oldest first. */
    items: WebhookMessage[];
    /** Give it as `after` in the next request. */
    cursor: string;
    /** Whether there are more events: if so, ask again at once. */
    has_more: boolean;
    /** Ask again within this many seconds. An execution that ends later may not become an event. */
    listening_s: number;
};
export type BreakerState = "closed" | "open" | "half_open";
export type CircuitBreaker = {
    state: BreakerState;
    failure_count: number;
    success_count: number;
    last_failure: string | null;
};
export type QueueStats = {
    pending: number;
    running: number;
    max_workers: number;
    max_queue_size: number;
};
export type Health = {
    /** degraded: no container engine is available, or the breaker is open. */
    status: "healthy" | "degraded";
    docker_available: boolean;
    gvisor_available: boolean;
    /** An agent forks jobs; absent if none does. */
    forks_available?: true | undefined;
    circuit_breaker: CircuitBreaker;
    version: string;
    production_mode: boolean;
    queue_stats: QueueStats;
};
export type WorkerStats = {
    max: number;
    running: number;
    idle: number;
};
export type QueueUse = {
    pending: number;
    max: number;
};
export type GpuCount = {
    total: number;
    free: number;
};
export type ContainerBackend = "engine" | "zygote";
export type PoolKind = {
    job_type: string;
    /** null: the engine's default. */
    runtime: string | null;
    backend?: ContainerBackend | undefined;
    /** Containers that wait for a job. */
    ready: number;
    /** Containers that are being started ahead of a job. */
    starting: number;
    /** Containers that run a job. */
    in_use: number;
};
export type EngineErrors = {
    operation: string;
    kind: string;
    count: number;
};
export type MissingImage = {
    image: string;
    reason: string;
};
export type EngineHealth = {
    available: boolean;
    version: string | null;
    runtimes: string[];
    /** Calls to the engine that failed since the agent started. */
    errors?: EngineErrors[] | undefined;
    /** Why the agent forks no jobs; null if it does. */
    fork_problem?: (string | null) | undefined;
    /** Built images that the agent needs and does not have; absent if there are none. */
    missing_images?: MissingImage[] | undefined;
};
export type PoolAgent = {
    id: string;
    name: string;
    version: string;
    /** working: all slots are in use; unwell: it gets no jobs; draining: an operator has ended its taking of new jobs; silent: it has not contacted the API for `liveness_s`, and no other count includes it. */
    state: "working" | "idle" | "unwell" | "silent" | "draining";
    /** Why it gets no jobs. */
    problem: string | null;
    labels: {
        [key: string]: string;
    };
    /** Executions it runs at once. */
    slots: number;
    running: number;
    gpus: GpuCount;
    /** Containers that wait for a job, for all job types. */
    warm: number;
    pool: PoolKind[];
    engine: EngineHealth;
    breaker: CircuitBreaker;
    last_seen: string;
};
export type PoolStats = {
    workers: WorkerStats;
    queue: QueueUse;
    agents: PoolAgent[];
    /** running / max, 0 without agents. */
    utilization: number;
};
export type EndedCounts = {
    succeeded?: number | undefined;
    failed?: number | undefined;
    timeout?: number | undefined;
    oom?: number | undefined;
    cancelled?: number | undefined;
};
export type HistoryPoint = {
    /** The point's end. */
    at: string;
    /** Most executions that waited at once. */
    pending: number;
    /** Most executions that ran at once. */
    running: number;
    /** What the live agents could run at once. */
    max_workers: number;
    ended: EndedCounts;
};
export type PoolHistory = {
    points: HistoryPoint[];
};
export type JoinedHost = {
    id: string;
    name: string;
    joined_at: string;
    /** When its token was last used. */
    last_used_at: string | null;
    /** Since when its token is void. */
    revoked_at: string | null;
    /** When an operator asked the host to replace its token. Absent once the new token is in use. */
    rotation_asked_at?: string | undefined;
    /** Ids of its agents, as in `GET /pool/stats`: one for each start of the program. */
    agents: string[];
};
export type HostList = {
    hosts: JoinedHost[];
};
export type InvitationRequest = {
    /** Name of the host; default: the host says its own. */
    name?: string | undefined;
    /** Seconds until the code can no longer be used. */
    expires_in_s?: number | undefined;
};
export type Invitation = {
    /** Is shown once; the service stores only its hash. */
    code: string;
    name: string | null;
    expires_at: string;
};
export type Probe = {
    status: "ok";
};
/**
 * Run code and wait for its result
 */
export function execute({ idempotencyKey, executeRequest }: {
    idempotencyKey?: string;
    executeRequest: ExecuteRequest;
}, opts?: Oazapfts.RequestOpts) {
    return oazapfts.fetchJson<{
        status: 200;
        data: SyncResult;
    }>("/execute", oazapfts.json({
        ...opts,
        method: "POST",
        body: executeRequest,
        headers: oazapfts.mergeHeaders(opts?.headers, {
            "Idempotency-Key": idempotencyKey
        })
    }));
}
/**
 * Queue code and get a job id at once
 */
export function executeAsync({ idempotencyKey, prefer, asyncSubmitRequest }: {
    idempotencyKey?: string;
    prefer?: string;
    asyncSubmitRequest: AsyncSubmitRequest;
}, opts?: Oazapfts.RequestOpts) {
    return oazapfts.fetchJson<{
        status: 200;
        data: ExecutionRecord;
    } | {
        status: 202;
        data: SubmittedJob;
    }>("/execute/async", oazapfts.json({
        ...opts,
        method: "POST",
        body: asyncSubmitRequest,
        headers: oazapfts.mergeHeaders(opts?.headers, {
            "Idempotency-Key": idempotencyKey,
            Prefer: prefer
        })
    }));
}
/**
 * Queue up to 1,000 jobs in one request
 */
export function executeBatch({ idempotencyKey, batchRequest }: {
    idempotencyKey?: string;
    batchRequest: BatchRequest;
}, opts?: Oazapfts.RequestOpts) {
    return oazapfts.fetchJson<{
        status: 202;
        data: SubmittedBatch;
    }>("/execute/batch", oazapfts.json({
        ...opts,
        method: "POST",
        body: batchRequest,
        headers: oazapfts.mergeHeaders(opts?.headers, {
            "Idempotency-Key": idempotencyKey
        })
    }));
}
/**
 * How many members of a batch have which status
 */
export function getBatch({ id }: {
    id: string;
}, opts?: Oazapfts.RequestOpts) {
    return oazapfts.fetchJson<{
        status: 200;
        data: Batch;
    }>(`/batches/${encodeURIComponent(id)}`, {
        ...opts
    });
}
/**
 * Cancel every member of a batch that has not finished
 */
export function cancelBatch({ id }: {
    id: string;
}, opts?: Oazapfts.RequestOpts) {
    return oazapfts.fetchJson<{
        status: 200;
        data: Batch;
    }>(`/batches/${encodeURIComponent(id)}/cancel`, {
        ...opts,
        method: "POST"
    });
}
/**
 * Upload a file to use in jobs
 */
export function uploadFile({ name, idempotencyKey, xAirlockSha256, body }: {
    name: string;
    idempotencyKey?: string;
    xAirlockSha256?: string;
    body: Blob;
}, opts?: Oazapfts.RequestOpts) {
    return oazapfts.fetchJson<{
        status: 201;
        data: UploadedFile;
    }>(`/files${QS.query(QS.explode({
        name
    }))}`, {
        ...opts,
        method: "POST",
        body,
        headers: oazapfts.mergeHeaders(opts?.headers, {
            "Idempotency-Key": idempotencyKey,
            "X-Airlock-SHA256": xAirlockSha256
        })
    });
}
/**
 * Uploaded files, newest first
 */
export function listFiles({ before, limit, offset }: {
    before?: string;
    limit?: number;
    offset?: number;
}, opts?: Oazapfts.RequestOpts) {
    return oazapfts.fetchJson<{
        status: 200;
        data: FilePage;
    }>(`/files${QS.query(QS.explode({
        before,
        limit,
        offset
    }))}`, {
        ...opts
    });
}
/**
 * Download an uploaded file
 */
export function downloadFile({ id, ifNoneMatch, range, ifRange }: {
    id: string;
    ifNoneMatch?: string;
    range?: string;
    ifRange?: string;
}, opts?: Oazapfts.RequestOpts) {
    return oazapfts.fetchJson<{
        status: 200;
        data: Blob;
    } | {
        status: 206;
        data: Blob;
    }>(`/files/${encodeURIComponent(id)}`, {
        ...opts,
        headers: oazapfts.mergeHeaders(opts?.headers, {
            "If-None-Match": ifNoneMatch,
            Range: range,
            "If-Range": ifRange
        })
    });
}
/**
 * Headers of an uploaded file
 */
export function getFileHeaders({ id, ifNoneMatch }: {
    id: string;
    ifNoneMatch?: string;
}, opts?: Oazapfts.RequestOpts) {
    return oazapfts.fetchText(`/files/${encodeURIComponent(id)}`, {
        ...opts,
        method: "HEAD",
        headers: oazapfts.mergeHeaders(opts?.headers, {
            "If-None-Match": ifNoneMatch
        })
    });
}
/**
 * Remove an uploaded file
 */
export function deleteFile({ id }: {
    id: string;
}, opts?: Oazapfts.RequestOpts) {
    return oazapfts.fetchJson<{
        status: 200;
        data: FileDeleted;
    }>(`/files/${encodeURIComponent(id)}`, {
        ...opts,
        method: "DELETE"
    });
}
/**
 * Status of a job
 */
export function getJob({ id }: {
    id: string;
}, opts?: Oazapfts.RequestOpts) {
    return oazapfts.fetchJson<{
        status: 200;
        data: JobStatus;
    }>(`/jobs/${encodeURIComponent(id)}`, {
        ...opts
    });
}
/**
 * Result of a job
 */
export function getJobResult({ id, wait, timeout, view }: {
    id: string;
    wait?: boolean;
    timeout?: number;
    view?: "full" | "all";
}, opts?: Oazapfts.RequestOpts) {
    return oazapfts.fetchJson<{
        status: 200;
        data: ExecutionRecord;
    } | {
        status: 202;
        data: InProgressResult;
    }>(`/jobs/${encodeURIComponent(id)}/result${QS.query(QS.explode({
        wait,
        timeout,
        view
    }))}`, {
        ...opts
    });
}
/**
 * Cancel a job
 */
export function cancelJob({ id }: {
    id: string;
}, opts?: Oazapfts.RequestOpts) {
    return oazapfts.fetchJson<{
        status: 200;
        data: JobStatus;
    }>(`/jobs/${encodeURIComponent(id)}/cancel`, {
        ...opts,
        method: "POST"
    });
}
/**
 * Follow a job
 */
export function followJob({ id, after, lastEventId }: {
    id: string;
    after?: string;
    lastEventId?: string;
}, opts?: Oazapfts.RequestOpts) {
    return oazapfts.fetchText(`/jobs/${encodeURIComponent(id)}/events${QS.query(QS.explode({
        after
    }))}`, {
        ...opts,
        headers: oazapfts.mergeHeaders(opts?.headers, {
            "Last-Event-ID": lastEventId
        })
    });
}
/**
 * Raw output of a job
 */
export function getJobLogs({ id, stream, offset, range }: {
    id: string;
    stream?: "stdout" | "stderr";
    offset?: number;
    range?: string;
}, opts?: Oazapfts.RequestOpts) {
    return oazapfts.fetchBlob<{
        status: 200;
        data: Blob;
    } | {
        status: 206;
        data: Blob;
    }>(`/jobs/${encodeURIComponent(id)}/logs${QS.query(QS.explode({
        stream,
        offset
    }))}`, {
        ...opts,
        headers: oazapfts.mergeHeaders(opts?.headers, {
            Range: range
        })
    });
}
/**
 * Run a job again: same code, same input
 */
export function rerunJob({ id, idempotencyKey, rerunRequest }: {
    id: string;
    idempotencyKey?: string;
    rerunRequest?: RerunRequest;
}, opts?: Oazapfts.RequestOpts) {
    return oazapfts.fetchJson<{
        status: 202;
        data: DerivedJob;
    }>(`/jobs/${encodeURIComponent(id)}/rerun`, oazapfts.json({
        ...opts,
        method: "POST",
        body: rerunRequest,
        headers: oazapfts.mergeHeaders(opts?.headers, {
            "Idempotency-Key": idempotencyKey
        })
    }));
}
/**
 * Run new code on a job's input
 */
export function forkJob({ id, idempotencyKey, forkRequest }: {
    id: string;
    idempotencyKey?: string;
    forkRequest: ForkRequest;
}, opts?: Oazapfts.RequestOpts) {
    return oazapfts.fetchJson<{
        status: 202;
        data: DerivedJob;
    }>(`/jobs/${encodeURIComponent(id)}/fork`, oazapfts.json({
        ...opts,
        method: "POST",
        body: forkRequest,
        headers: oazapfts.mergeHeaders(opts?.headers, {
            "Idempotency-Key": idempotencyKey
        })
    }));
}
/**
 * Artifacts of a job
 */
export function listArtifacts({ id }: {
    id: string;
}, opts?: Oazapfts.RequestOpts) {
    return oazapfts.fetchJson<{
        status: 200;
        data: ArtifactList;
    }>(`/jobs/${encodeURIComponent(id)}/artifacts`, {
        ...opts
    });
}
/**
 * Download an artifact
 */
export function downloadArtifact({ jobId, artifactName, $from, ifNoneMatch, range, ifRange }: {
    jobId: string;
    artifactName: string;
    $from?: "input";
    ifNoneMatch?: string;
    range?: string;
    ifRange?: string;
}, opts?: Oazapfts.RequestOpts) {
    return oazapfts.fetchJson<{
        status: 200;
        data: Blob;
    } | {
        status: 206;
        data: Blob;
    }>(`/jobs/${encodeURIComponent(jobId)}/artifacts/${encodeURIComponent(artifactName)}${QS.query(QS.explode({
        "from": $from
    }))}`, {
        ...opts,
        headers: oazapfts.mergeHeaders(opts?.headers, {
            "If-None-Match": ifNoneMatch,
            Range: range,
            "If-Range": ifRange
        })
    });
}
/**
 * Headers of an artifact
 */
export function getArtifactHeaders({ jobId, artifactName, $from, ifNoneMatch }: {
    jobId: string;
    artifactName: string;
    $from?: "input";
    ifNoneMatch?: string;
}, opts?: Oazapfts.RequestOpts) {
    return oazapfts.fetchText(`/jobs/${encodeURIComponent(jobId)}/artifacts/${encodeURIComponent(artifactName)}${QS.query(QS.explode({
        "from": $from
    }))}`, {
        ...opts,
        method: "HEAD",
        headers: oazapfts.mergeHeaders(opts?.headers, {
            "If-None-Match": ifNoneMatch
        })
    });
}
/**
 * Executions, newest first
 */
export function listExecutions({ status, jobType, parentExecutionId, batchId, metadata, createdAfter, createdBefore, before, limit, offset, view, fields }: {
    status?: ExecutionStatus;
    jobType?: string;
    parentExecutionId?: string;
    batchId?: string;
    metadata?: string[];
    createdAfter?: string;
    createdBefore?: string;
    before?: string;
    limit?: number;
    offset?: number;
    view?: "full" | "all";
    fields?: string;
}, opts?: Oazapfts.RequestOpts) {
    return oazapfts.fetchJson<{
        status: 200;
        data: ExecutionList;
    }>(`/executions${QS.query(QS.explode({
        status,
        job_type: jobType,
        parent_execution_id: parentExecutionId,
        batch_id: batchId,
        metadata,
        created_after: createdAfter,
        created_before: createdBefore,
        before,
        limit,
        offset,
        view,
        fields
    }))}`, {
        ...opts
    });
}
/**
 * One execution record, finished or not
 */
export function getExecution({ id, view }: {
    id: string;
    view?: "full" | "all";
}, opts?: Oazapfts.RequestOpts) {
    return oazapfts.fetchJson<{
        status: 200;
        data: ExecutionRecord;
    }>(`/executions/${encodeURIComponent(id)}${QS.query(QS.explode({
        view
    }))}`, {
        ...opts
    });
}
/**
 * Remove a finished execution
 */
export function deleteExecution({ id }: {
    id: string;
}, opts?: Oazapfts.RequestOpts) {
    return oazapfts.fetchJson<{
        status: 200;
        data: ExecutionDeleted;
    }>(`/executions/${encodeURIComponent(id)}`, {
        ...opts,
        method: "DELETE"
    });
}
/**
 * Every job type
 */
export function listJobTypes(opts?: Oazapfts.RequestOpts) {
    return oazapfts.fetchJson<{
        status: 200;
        data: JobTypeList;
    }>("/job-types", {
        ...opts
    });
}
/**
 * One job type
 */
export function getJobType({ name }: {
    name: string;
}, opts?: Oazapfts.RequestOpts) {
    return oazapfts.fetchJson<{
        status: 200;
        data: JobType;
    }>(`/job-types/${encodeURIComponent(name)}`, {
        ...opts
    });
}
/**
 * Build a job type's image
 */
export function buildJobType({ name, versionTag }: {
    name: string;
    versionTag?: string;
}, opts?: Oazapfts.RequestOpts) {
    return oazapfts.fetchJson<{
        status: 200;
        data: BuildResult;
    }>(`/job-types/${encodeURIComponent(name)}/build${QS.query(QS.explode({
        version_tag: versionTag
    }))}`, {
        ...opts,
        method: "POST"
    });
}
/**
 * A job type's last build and its log
 */
export function getBuild({ name }: {
    name: string;
}, opts?: Oazapfts.RequestOpts) {
    return oazapfts.fetchJson<{
        status: 200;
        data: Build;
    }>(`/job-types/${encodeURIComponent(name)}/build`, {
        ...opts
    });
}
/**
 * Failed jobs, newest first
 */
export function listDeadLetters({ errorType, before, limit, offset }: {
    errorType?: ExecutionErrorType;
    before?: number;
    limit?: number;
    offset?: number;
}, opts?: Oazapfts.RequestOpts) {
    return oazapfts.fetchJson<{
        status: 200;
        data: DeadLetterPage;
    }>(`/dlq${QS.query(QS.explode({
        error_type: errorType,
        before,
        limit,
        offset
    }))}`, {
        ...opts
    });
}
/**
 * Counts of failed jobs by error type
 */
export function getDeadLetterStats(opts?: Oazapfts.RequestOpts) {
    return oazapfts.fetchJson<{
        status: 200;
        data: DeadLetterStats;
    }>("/dlq/stats", {
        ...opts
    });
}
/**
 * Remove an entry
 */
export function deleteDeadLetter({ id }: {
    id: number;
}, opts?: Oazapfts.RequestOpts) {
    return oazapfts.fetchJson<{
        status: 200;
        data: DeadLetterDeleted;
    }>(`/dlq/${encodeURIComponent(id)}`, {
        ...opts,
        method: "DELETE"
    });
}
/**
 * What became of the calls to receivers, newest first
 */
export function listWebhookDeliveries({ status, endpoint, jobId, before, limit }: {
    status?: DeliveryStatus;
    endpoint?: string;
    jobId?: string;
    before?: number;
    limit?: number;
}, opts?: Oazapfts.RequestOpts) {
    return oazapfts.fetchJson<{
        status: 200;
        data: WebhookDeliveryPage;
    }>(`/webhooks/deliveries${QS.query(QS.explode({
        status,
        endpoint,
        job_id: jobId,
        before,
        limit
    }))}`, {
        ...opts
    });
}
/**
 * Send a delivery again
 */
export function resendWebhookDelivery({ id }: {
    id: number;
}, opts?: Oazapfts.RequestOpts) {
    return oazapfts.fetchJson<{
        status: 202;
        data: WebhookDelivery;
    }>(`/webhooks/deliveries/${encodeURIComponent(id)}/resend`, {
        ...opts,
        method: "POST"
    });
}
/**
 * Fetch webhook events instead of being called
 */
export function listenForWebhookEvents({ after, wait, limit }: {
    after?: string;
    wait?: number;
    limit?: number;
}, opts?: Oazapfts.RequestOpts) {
    return oazapfts.fetchJson<{
        status: 200;
        data: WebhookEventPage;
    }>(`/webhooks/events${QS.query(QS.explode({
        after,
        wait,
        limit
    }))}`, {
        ...opts
    });
}
/**
 * Health of the service
 */
export function getHealth(opts?: Oazapfts.RequestOpts) {
    return oazapfts.fetchJson<{
        status: 200;
        data: Health;
    }>("/health", {
        ...opts
    });
}
/**
 * Workers, queue and agents
 */
export function getPoolStats(opts?: Oazapfts.RequestOpts) {
    return oazapfts.fetchJson<{
        status: 200;
        data: PoolStats;
    }>("/pool/stats", {
        ...opts
    });
}
/**
 * Queue, running executions and results of the last two days
 */
export function getPoolHistory({ hours, step }: {
    hours?: number;
    step?: number;
}, opts?: Oazapfts.RequestOpts) {
    return oazapfts.fetchJson<{
        status: 200;
        data: PoolHistory;
    }>(`/pool/history${QS.query(QS.explode({
        hours,
        step
    }))}`, {
        ...opts
    });
}
/**
 * Hosts that have joined
 */
export function listHosts(opts?: Oazapfts.RequestOpts) {
    return oazapfts.fetchJson<{
        status: 200;
        data: HostList;
    }>("/hosts", {
        ...opts
    });
}
/**
 * Make a code with which a host can join
 */
export function inviteHost({ invitationRequest }: {
    invitationRequest: InvitationRequest;
}, opts?: Oazapfts.RequestOpts) {
    return oazapfts.fetchJson<{
        status: 201;
        data: Invitation;
    }>("/hosts/invitations", oazapfts.json({
        ...opts,
        method: "POST",
        body: invitationRequest
    }));
}
/**
 * Void a host's token
 */
export function revokeHost({ id }: {
    id: string;
}, opts?: Oazapfts.RequestOpts) {
    return oazapfts.fetchJson<{
        status: 200;
        data: JoinedHost;
    }>(`/hosts/${encodeURIComponent(id)}/revoke`, {
        ...opts,
        method: "POST"
    });
}
/**
 * Ask a host to replace its token
 */
export function rotateHost({ id }: {
    id: string;
}, opts?: Oazapfts.RequestOpts) {
    return oazapfts.fetchJson<{
        status: 200;
        data: JoinedHost;
    }>(`/hosts/${encodeURIComponent(id)}/rotate`, {
        ...opts,
        method: "POST"
    });
}
/**
 * Give an agent no new work
 */
export function drainAgent({ id }: {
    id: string;
}, opts?: Oazapfts.RequestOpts) {
    return oazapfts.fetchJson<{
        status: 200;
        data: PoolAgent;
    }>(`/agents/${encodeURIComponent(id)}/drain`, {
        ...opts,
        method: "POST"
    });
}
/**
 * Give a drained agent work again
 */
export function resumeAgent({ id }: {
    id: string;
}, opts?: Oazapfts.RequestOpts) {
    return oazapfts.fetchJson<{
        status: 200;
        data: PoolAgent;
    }>(`/agents/${encodeURIComponent(id)}/resume`, {
        ...opts,
        method: "POST"
    });
}
/**
 * Liveness: whether the process serves
 */
export function getLiveness(opts?: Oazapfts.RequestOpts) {
    return oazapfts.fetchJson<{
        status: 200;
        data: Probe;
    }>("/health/live", {
        ...opts
    });
}
/**
 * Readiness: whether requests should be sent here
 */
export function getReadiness(opts?: Oazapfts.RequestOpts) {
    return oazapfts.fetchJson<{
        status: 200;
        data: Probe;
    }>("/health/ready", {
        ...opts
    });
}
/**
 * Metrics for Prometheus
 */
export function getMetrics(opts?: Oazapfts.RequestOpts) {
    return oazapfts.fetchText("/metrics", {
        ...opts
    });
}
/**
 * This description, as OpenAPI 3.1
 */
export function getOpenApi(opts?: Oazapfts.RequestOpts) {
    return oazapfts.fetchJson<{
        status: 200;
        data: {
            openapi: string;
            [key: string]: unknown;
        };
    }>("/openapi.json", {
        ...opts
    });
}
/**
 * This page
 */
export function getDocs(opts?: Oazapfts.RequestOpts) {
    return oazapfts.fetchText("/docs", {
        ...opts
    });
}
