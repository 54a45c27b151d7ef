"""What crosses the wire. Written by `npm run docs` from the OpenAPI document."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Literal, Optional, Sequence, TypedDict, Union

from .record import Record, Shown

__all__ = [
    "WebhookEvent", "WebhookType", "WebhookData", "WebhookError", "ExecutionErrorType",
    "ExecutionPhase", "Relationship", "WebhookLinks", "Problem", "ProblemCode", "FieldError",
    "ExecutionError", "Quota", "SessionEndReason", "SyncResult", "ResultItem", "Compilation",
    "ExecuteRequest", "ExecuteRequestOptional", "InputFile", "InputFileOptional",
    "ArtifactOfJob", "Tool", "ToolOptional", "ExecutionRecord", "ExecutionStatus", "Timing",
    "PhaseAtExit", "Artifact", "ResourceUsage", "SubmissionMode", "Attempt", "AttemptOutcome",
    "SubmittedJob", "AsyncSubmitRequest", "AsyncSubmitRequestOptional", "SubmittedBatch",
    "BatchRequest", "BatchRequestOptional", "Batch", "BatchCounts", "UploadedFile", "FilePage",
    "FileDeleted", "Session", "SessionStatus", "ContainerBackend", "SessionRequest",
    "SessionPage", "SessionPatch", "CallRequest", "CallRequestOptional", "CallInputFile",
    "CallInputFileOptional", "Interrupted", "RestartRequest", "SessionContext",
    "SessionContexts", "SessionFiles", "SessionFile", "SessionFileType", "JobStatus",
    "InProgressResult", "QueueStatus", "ToolCalls", "ToolCall", "ToolAnswer", "AnsweredCall",
    "DerivedJob", "RerunRequest", "ForkRequest", "ForkRequestOptional", "ArtifactList",
    "ExecutionList", "ExecutionPage", "NarrowedPage", "NarrowedRecord", "ExecutionDeleted",
    "JobTypeList", "JobType", "Language", "BuildResult", "Build", "BuildStatus",
    "DeadLetterPage", "DeadLetter", "DeadLetterJob", "DeadLetterStats", "DeadLetterDeleted",
    "WebhookDeliveryPage", "WebhookDelivery", "DeliveryStatus", "WebhookEventPage",
    "WebhookMessage", "Usage", "TenantUsage", "TenantLimits", "Health", "CircuitBreaker",
    "BreakerState", "QueueStats", "PoolStats", "WorkerStats", "QueueUse", "PoolAgent",
    "SessionUse", "GpuCount", "PoolKind", "EngineHealth", "EngineErrors", "MissingImage",
    "PoolHistory", "HistoryPoint", "EndedCounts", "HostList", "JoinedHost", "Invitation",
    "InvitationRequest", "AuditPage", "AuditEntry", "AuditAction", "OwnKey", "Scope",
    "NewApiKey", "KeyRequest", "KeyRequestOptional", "ApiKeyList", "ApiKey", "KeyRotation",
    "TenantList", "Tenant", "Probe",
]

WebhookType = Literal["execution.succeeded", "execution.failed", "execution.timeout", "execution.oom", "execution.cancelled"]

ExecutionErrorType = Literal["timeout", "startup_timeout", "execution_timeout", "oom", "cancelled", "segfault", "abort", "arithmetic_error", "bus_error", "pipe_error", "killed", "compile_error", "syntax_error", "import_error", "type_error", "value_error", "key_error", "index_error", "attribute_error", "name_error", "file_not_found", "file_error", "os_error", "recursion_error", "assertion_error", "division_error", "overflow_error", "encoding_error", "json_error", "permission", "dependency_error", "network_error", "network_timeout", "docker_error", "service_unavailable", "config_error", "interpreter_ended", "internal_error", "runtime_error", "unknown"]

ExecutionPhase = Literal["startup", "execution"]

Relationship = Literal["rerun", "fork"]

ProblemCode = Literal["invalid_request", "unauthorized", "forbidden", "not_found", "method_not_allowed", "wait_timeout", "conflict", "session_ended", "lease_lost", "length_required", "too_large", "unsupported_encoding", "range_not_satisfiable", "timeout_too_long", "language_unavailable", "batch_too_large", "files_too_large", "build_failed", "rate_limited", "quota_exceeded", "too_many_sessions", "headers_too_large", "internal", "engine_failed", "unavailable"]

Quota = Literal["max_queued", "max_stored_bytes", "max_cpu_s_day"]

SessionEndReason = Literal["deleted", "idle", "lifetime", "agent_lost", "agent_stopped", "out_of_memory", "engine_lost", "start_failed"]

ExecutionStatus = Literal["queued", "running", "succeeded", "failed", "timeout", "oom", "cancelled"]

PhaseAtExit = Literal["startup", "execution", "completed", "failed"]

SubmissionMode = Literal["sync", "async"]

AttemptOutcome = Literal["result", "released", "agent_stopped", "agent_crashed", "lease_expired"]

SessionStatus = Literal["queued", "starting", "ready", "ended"]

ContainerBackend = Literal["engine", "zygote"]

SessionFileType = Literal["file", "folder", "other"]

QueueStatus = Literal["pending", "running", "completed"]

ExecutionList = Union["ExecutionPage", "NarrowedPage"]

JobTypeList = List["JobType"]

BuildStatus = Literal["queued", "running", "built", "failed"]

DeliveryStatus = Literal["pending", "delivered", "failed"]

BreakerState = Literal["closed", "open", "half_open"]

AuditAction = Literal["key.create", "key.rotate", "key.revoke", "tenant.limits", "host.invite", "host.revoke", "host.rotate", "agent.drain", "agent.resume", "build.request", "execution.delete", "session.delete", "dlq.delete"]

Scope = Literal["run", "read", "build", "monitor", "agents", "admin"]


class WebhookEvent(Record):
    """An execution has ended."""

    type: WebhookType
    #: When the execution ended.
    timestamp: str
    data: WebhookData


class WebhookData(Record):
    job_id: str
    #: Whose job it was.
    tenant: str
    status: Literal["succeeded", "failed", "timeout", "oom", "cancelled"]
    job_type: str
    #: Attempts that were made; 0 if it never started.
    attempt: int
    created_at: str
    started_at: Optional[str]
    ended_at: str
    exit_code: Optional[int]
    error: Optional[WebhookError]
    correlation_id: str
    metadata: Optional[Dict[str, str]]
    batch_id: Optional[str]
    #: The session whose call it was.
    session_id: Optional[str]
    parent_execution_id: Optional[str]
    relationship: Optional[Relationship]
    traceparent: Optional[str]
    links: WebhookLinks


class WebhookError(Record):
    """The record has the message."""

    type: ExecutionErrorType
    phase: ExecutionPhase


class WebhookLinks(Record):
    """Paths at this service."""

    record: str
    result: str


class Problem(Record):
    """RFC 9457 problem details."""

    #: Where this kind of problem is explained.
    type: str
    code: ProblemCode
    title: str
    status: int
    #: What is wrong and what to do about it.
    detail: str
    #: Identifies this request in the service's log.
    correlation_id: str
    #: On 400 and 422: every fault of the request.
    errors: Optional[List[FieldError]]
    error: Optional[ExecutionError]
    #: On 409: the job that holds the idempotency key.
    existing_job_id: Optional[str]
    quota: Optional[Quota]
    #: With `quota`: what the tenant may use: bytes, seconds or jobs.
    limit: Optional[int]
    #: With `quota`: what the tenant uses.
    used: Optional[float]
    #: The session that the refusal is about.
    session_id: Optional[str]
    reason: Optional[SessionEndReason]
    #: The job that the refusal is about, where it is known. On 503: the job that this request made, or may have made, before it failed.
    job_id: Optional[str]


class FieldError(Record):
    """One fault of a request."""

    #: Dotted path of the field.
    path: str
    message: str


class ExecutionError(Record):
    """Why an execution did not succeed."""

    type: ExecutionErrorType
    message: str
    phase: ExecutionPhase


class SyncResult(Record):
    #: The run finished without error.
    success: bool
    #: Parsed /output/result.json.
    output: Optional[Dict[str, Any]]
    stdout: str
    stderr: str
    exit_code: Optional[int]
    #: Wall clock seconds.
    execution_time: float
    error: Optional[ExecutionError]
    job_type: str
    #: Id of the execution's record and artifacts.
    job_id: str
    #: With `results: true` in the request, what the code showed: values passed to `display`, figures, and the value of its last expression. Left out otherwise.
    results: Optional[List[ResultItem]]
    #: true if something was left out of `results`; otherwise the field is left out.
    results_truncated: Optional[bool]
    compile: Optional[Compilation]
    #: What of the request or of /output was left out without an error: `requirements` that the service does not install, files that cannot be artifacts. Left out where there is none.
    warnings: Optional[List[str]]


class ResultItem(Shown):
    """A value that the code showed."""

    #: Results and calls of `tools` are numbered together, in their order.
    number: int
    #: It is the value of the code's last expression.
    main: bool
    #: Forms of the value by MIME type, as text; pictures and other bytes in base64. `text/plain` is its repr.
    data: Dict[str, str]
    #: Bytes of stdout that come before it.
    stdout_at: int
    stderr_at: int


class Compilation(Record):
    #: null if a signal ended it.
    exit_code: Optional[int]
    #: The beginning of what it printed.
    stdout: str
    stderr: str
    #: Milliseconds that it took; they are not part of `execution_ms`.
    ms: int


class ExecuteRequestOptional(TypedDict, total=False):
    #: Written to /input/data.json.
    input_data: Dict[str, Any]
    #: Time limit of the code in seconds, without start-up. Default: the job type's, else `default_timeout`. At most the configured `max_timeout`.
    timeout: int
    #: Seconds for container creation and dependency install.
    startup_timeout: int
    job_type: str
    #: Packages for this job by name and version (PEP 508), installed before the code runs; wheels only. Honoured only with `allow_runtime_requirements`.
    requirements: List[str]
    #: Files that the code finds at /input/<name>, read-only. Above a quarter of the job's memory limit together, the job needs an agent that mounts files.
    files: List[InputFile]
    #: The same key with the same payload returns the same job, from every request that makes a job. Each tenant has keys of its own, which all its API keys share.
    idempotency_key: str
    #: Language of the code; default: python. The image of the job type must have its compiler and its program.
    language: str
    #: A program of the image with its arguments, in place of `language`. The code is the file /code/main; `{file}` in an argument becomes that path.
    command: List[str]
    #: Compiles what `command` runs: a program of the image with its arguments. It runs first, like the compiler of a language, and may write to /tmp and /output.
    compile_command: List[str]
    #: Time limit of the compiler in seconds; its time is not part of `timeout`. Default: 10.
    compile_timeout: int
    #: What the code reads from its standard input, as UTF-8. Without it, the standard input is at its end.
    stdin: str
    #: The arguments of the code: `sys.argv[1:]`.
    args: List[str]
    #: true: Python code runs as a cell of a notebook. The record's `results` has the value of its last expression, what it passes to `display`, and matplotlib's figures; `await` works outside functions.
    results: bool
    #: Functions that the code can call by name. Each call is an event `tool_call`; the function returns what `POST /jobs/{id}/tool-calls/{number}` answers. The code runs as with `results: true`, and with `max_attempts` 1.
    tools: Sequence[Union[Tool, Callable[..., Any]]]
    #: Seconds that calls of `tools` may wait for their answers, all together; they are not part of `timeout`. Default: 300. At most the configured `max_timeout`.
    tool_timeout: int
    #: The client's own words about the job. Its record has them, and lists can be filtered by them.
    metadata: Dict[str, str]
    #: The job waits until then. It takes a place in the queue meanwhile. A time in the past is now.
    run_at: str
    #: Seconds that the job may wait for its start, from `run_at` or its submission on. If no agent has taken it by then, it ends as `timeout`.
    queue_timeout: int
    #: 1: the code never starts twice, for code with side effects; if its agent is lost, the job fails. Default 2. A try that ended before the code started is not counted, but there are two at most.
    max_attempts: int
    #: Called when the job has ended, as docs/guides/webhooks.md says. Its host must be one of `webhook_callbacks.hosts`. Reruns and forks do not inherit it.
    callback_url: str


class ExecuteRequest(ExecuteRequestOptional):
    #: Source code: Python, run as /code/main.py, or what `language` or `command` runs from a file in /code.
    code: str


class InputFileOptional(TypedDict, total=False):
    #: Its content, stored as UTF-8.
    text: str
    #: Its content in base64.
    base64: str
    #: A file sent to `POST /files`.
    file_id: str
    artifact: ArtifactOfJob


class InputFile(InputFileOptional):
    """A file that the code finds at /input/<name>, read-only."""

    #: Its path under /input: a relative path, as of an artifact. `data.json` and names that begin with `_` are taken.
    name: str


class ArtifactOfJob(TypedDict):
    """An artifact of a finished job."""

    job_id: str
    name: str


class ToolOptional(TypedDict, total=False):
    #: Its docstring.
    description: str
    #: A JSON Schema of its arguments. The parameters of the function are the names in `properties`; those in `required` have no default. The service does not check values.
    parameters: Dict[str, Any]
    #: true: it is a coroutine function, which the code awaits.
    awaitable: bool


class Tool(ToolOptional):
    """A function of the caller that the code can call."""

    #: Its name in the code.
    name: str


class ExecutionRecord(Record):
    execution_id: str
    status: ExecutionStatus
    job_type: str
    job_version: str
    created_at: str
    started_at: Optional[str]
    ended_at: Optional[str]
    duration_ms: Optional[int]
    exit_code: Optional[int]
    stdout: str
    stderr: str
    output: Optional[Dict[str, Any]]
    error: Optional[ExecutionError]
    timing: Optional[Timing]
    #: As submitted; left out where there is none.
    metadata: Optional[Dict[str, str]]
    #: With `results: true` in the request, what the code showed: values passed to `display`, figures, and the value of its last expression. Left out otherwise.
    results: Optional[List[ResultItem]]
    #: true if something was left out of `results`; otherwise the field is left out.
    results_truncated: Optional[bool]
    compile: Optional[Compilation]
    #: What of the request or of /output was left out without an error: `requirements` that the service does not install, files that cannot be artifacts. Left out where there is none.
    warnings: Optional[List[str]]
    #: Left out where there is none.
    batch_id: Optional[str]
    #: The session whose call it is. Other jobs have neither this nor the two fields below.
    session_id: Optional[str]
    #: Its number among the calls of its session.
    call: Optional[int]
    #: The context in which it runs.
    context: Optional[str]
    #: files: it reads or writes files of its session. Left out of calls that run code.
    kind: Optional[Literal["files"]]
    #: Whose it is, if the request is about all tenants (`X-Airlock-Tenant: *`).
    tenant: Optional[str]
    job_ref: Optional[str]
    #: How the code got its sandbox; absent for a container of its own.
    container_backend: Optional[Literal["engine", "zygote"]]
    #: Runtime of the container engine that ran the code; null if none did.
    container_runtime: Optional[str]
    artifacts: Optional[List[Artifact]]
    input_artifacts: Optional[List[Artifact]]
    resource_usage: Optional[ResourceUsage]
    #: SHA-256 of the code.
    code_hash: Optional[str]
    #: SHA-256 of the input data.
    input_hash: Optional[str]
    parent_execution_id: Optional[str]
    relationship: Optional[Relationship]
    stdout_truncated: Optional[bool]
    stderr_truncated: Optional[bool]
    idempotency_key: Optional[str]
    #: As submitted. Like the fields below, it is left out where it was not given.
    stdin: Optional[str]
    args: Optional[List[str]]
    language: Optional[str]
    command: Optional[List[str]]
    compile_command: Optional[List[str]]
    compile_timeout: Optional[int]
    tools: Optional[List[Tool]]
    tool_timeout: Optional[int]
    run_at: Optional[str]
    queue_timeout: Optional[int]
    max_attempts: Optional[int]
    callback_url: Optional[str]
    #: The W3C trace context of the request that made the job.
    traceparent: Optional[str]
    #: How many times an agent has taken the job. This field and those below it are only in a record with `view=all`.
    attempt: Optional[int]
    #: Identifies the request that made the job in the service's log.
    correlation_id: Optional[str]
    mode: Optional[SubmissionMode]
    #: Time limit of the code in seconds.
    timeout: Optional[int]
    startup_timeout: Optional[int]
    requirements: Optional[List[str]]
    #: Every attempt, the last or running one included; of more than 20 that were lost, the latest.
    attempts: Optional[List[Attempt]]


class Timing(Record):
    #: Container start plus dependency install.
    startup_ms: int
    #: The part of start-up spent installing.
    dep_install_ms: int
    #: Time of the submitted code.
    execution_ms: int
    #: From the agent taking the job to the end of collecting its output.
    total_ms: int
    phase_at_exit: PhaseAtExit


class Artifact(Record):
    name: str
    size_bytes: int
    sha256: str
    content_type: str


class ResourceUsage(Record):
    #: MiB; largest resident memory of one process, Python's own included, without files in /tmp.
    max_rss_mb: float
    #: CPU time of all processes and threads.
    cpu_time_ms: int
    #: Time of the submitted code.
    wall_time_ms: int


class Attempt(Record):
    """One try of a job by one agent."""

    #: Which try it was. The next one has the same number if an agent that stopped had not begun.
    attempt: int
    #: Which start of an agent had the job.
    agent_id: str
    #: Name of the agent; null if the service no longer knows it.
    agent: Optional[str]
    #: When the agent got the job.
    claimed_at: str
    #: When the agent said that the code had begun. Agents do not say it of code that ends within 50 ms.
    code_started_at: Optional[str]
    ended_at: Optional[str]
    #: Null while it runs, or if a version that kept no attempts ended it.
    outcome: Optional[AttemptOutcome]
    error: Optional[ExecutionError]


class SubmittedJob(Record):
    job_id: str
    status: ExecutionStatus
    created_at: str
    #: 1 is next; 0 once running.
    queue_position: int
    #: Why a queued job waits, if it waits for more than its turn.
    message: Optional[str]
    correlation_id: str


class AsyncSubmitRequestOptional(ExecuteRequestOptional):
    pass


class AsyncSubmitRequest(AsyncSubmitRequestOptional):
    #: Source code: Python, run as /code/main.py, or what `language` or `command` runs from a file in /code.
    code: str


class SubmittedBatch(Record):
    batch_id: str
    created_at: str
    #: The answer for each job, in the order of the request: as from `POST /execute/async`, or why it was refused. A job that had its idempotency key before is shown, but is no member of the batch.
    jobs: List[Union[SubmittedJob, Problem]]


class BatchRequestOptional(TypedDict, total=False):
    #: Accept all jobs or none.
    atomic: bool
    #: A repeat of the whole batch with this key gets the same batch. It is no key of a job.
    idempotency_key: str


class BatchRequest(BatchRequestOptional):
    #: Submissions, each as for `POST /execute/async`. In a batch that is not atomic, each is accepted or refused by itself.
    jobs: List[AsyncSubmitRequest]


class Batch(Record):
    batch_id: str
    created_at: str
    #: Members; a removed execution does not count.
    total: int
    #: Every member has ended.
    finished: bool
    counts: BatchCounts
    #: Whose it is, if the request is about all tenants (`X-Airlock-Tenant: *`).
    tenant: Optional[str]


class BatchCounts(Record):
    """The number of members with each status."""

    queued: Optional[int]
    running: Optional[int]
    succeeded: Optional[int]
    failed: Optional[int]
    timeout: Optional[int]
    oom: Optional[int]
    cancelled: Optional[int]


class UploadedFile(Record):
    #: For `files` of a request that makes a job.
    file_id: str
    name: str
    size_bytes: int
    sha256: str
    content_type: str
    created_at: str
    #: It is kept until then, and longer while a record refers to it.
    expires_at: str
    #: Whose it is, if the request is about all tenants (`X-Airlock-Tenant: *`).
    tenant: Optional[str]


class FilePage(TypedDict):
    items: List[UploadedFile]
    limit: int
    offset: int
    has_more: bool
    #: Items in this response.
    count: int


class FileDeleted(Record):
    file_id: str
    deleted: Literal[True]


class Session(Record):
    session_id: str
    status: SessionStatus
    #: A call runs or waits.
    busy: bool
    #: Why a queued session waits.
    message: Optional[str]
    reason: Optional[SessionEndReason]
    #: The failure that ended it, if one did.
    error: Optional[ExecutionError]
    job_type: str
    job_version: str
    requirements: List[str]
    #: The interpreters that calls can choose.
    contexts: List[str]
    #: Number of calls that it has received.
    calls: int
    created_at: str
    #: When an agent took it.
    started_at: Optional[str]
    ready_at: Optional[str]
    #: When its last call ended.
    used_at: Optional[str]
    ended_at: Optional[str]
    #: When its lifetime is over.
    expires_at: str
    idle_timeout: Optional[int]
    python_version: Optional[str]
    container_backend: Optional[ContainerBackend]
    container_runtime: Optional[str]
    metadata: Optional[Dict[str, str]]
    #: Whose it is, if the request is about all tenants (`X-Airlock-Tenant: *`).
    tenant: Optional[str]


class SessionRequest(TypedDict, total=False):
    job_type: str
    #: Packages for this job by name and version (PEP 508), installed before the code runs; wheels only. Honoured only with `allow_runtime_requirements`.
    requirements: List[str]
    #: Seconds for container creation and dependency install.
    startup_timeout: int
    #: Environment variables of its code. They are forgotten when it ends.
    env: Dict[str, str]
    #: Seconds without a call after which the session ends; null: never.
    idle_timeout: Optional[int]
    #: Seconds until the session ends, whatever it does. At most the configured `max_session_lifetime`.
    lifetime: int
    #: The client's own words about the job. Its record has them, and lists can be filtered by them.
    metadata: Dict[str, str]
    #: Seconds to wait for the session to be ready. After that the answer is 202.
    wait: float
    #: The same key with the same payload returns the same job, from every request that makes a job. Each tenant has keys of its own, which all its API keys share.
    idempotency_key: str


class SessionPage(TypedDict):
    items: List[Session]
    limit: int
    offset: int
    has_more: bool
    #: Items in this response.
    count: int


class SessionPatch(TypedDict, total=False):
    """Only the fields that are given change."""

    #: Seconds from now on until it ends.
    lifetime: int
    #: Seconds without a call after which the session ends; null: never.
    idle_timeout: Optional[int]
    #: The client's own words about the job. Its record has them, and lists can be filtered by them.
    metadata: Dict[str, str]


class CallRequestOptional(TypedDict, total=False):
    #: A program of the image with its arguments in place of code, run in /output.
    command: List[str]
    #: The interpreter that runs it: `default`, or a `context_id`.
    context: str
    #: Start the interpreter anew before the code. Files stay.
    restart: bool
    #: Environment variables for this call.
    env: Dict[str, str]
    #: Files that the call brings into the session. Together they have at most a quarter of the job type's memory limit.
    files: List[CallInputFile]
    #: Files that come back as artifacts `_fetched/<path>`: paths relative to /output, or below /output, /tmp or /input.
    fetch: List[str]
    #: Written to /input/data.json.
    input_data: Dict[str, Any]
    #: What the code reads from its standard input, as UTF-8. Without it, the standard input is at its end.
    stdin: str
    #: Functions that the code can call by name. Each call is an event `tool_call`; the function returns what `POST /jobs/{id}/tool-calls/{number}` answers. The code runs as with `results: true`, and with `max_attempts` 1.
    tools: Sequence[Union[Tool, Callable[..., Any]]]
    #: Seconds that calls of `tools` may wait for their answers, all together; they are not part of `timeout`. Default: 300. At most the configured `max_timeout`.
    tool_timeout: int
    #: Time limit of the code in seconds, without start-up. Default: the job type's, else `default_timeout`. At most the configured `max_timeout`.
    timeout: int
    #: Seconds that the job may wait for its start, from `run_at` or its submission on. If no agent has taken it by then, it ends as `timeout`.
    queue_timeout: int
    #: The client's own words about the job. Its record has them, and lists can be filtered by them.
    metadata: Dict[str, str]
    #: Called when the job has ended, as docs/guides/webhooks.md says. Its host must be one of `webhook_callbacks.hosts`. Reruns and forks do not inherit it.
    callback_url: str
    #: The same key with the same payload returns the same job, from every request that makes a job. Each tenant has keys of its own, which all its API keys share.
    idempotency_key: str


class CallRequest(CallRequestOptional, total=False):
    #: Python, run as a cell of a notebook: variables of earlier calls are there. Its results are what it displays and the value of its last expression.
    code: str


class CallInputFileOptional(TypedDict, total=False):
    #: input: at /input/<name>, read-only. work: at /output/<name>, where the code may change it. Later calls find it at either place.
    to: Literal["input", "work"]
    #: Its content, stored as UTF-8.
    text: str
    #: Its content in base64.
    base64: str
    #: A file sent to `POST /files`.
    file_id: str
    artifact: ArtifactOfJob


class CallInputFile(CallInputFileOptional):
    """A file that a call brings into its session."""

    #: Its path under the folder that `to` names: a relative path, as of an artifact. In /input, `data.json` and names that begin with `_` are taken; in /output, `_code.py` and `_input.json`.
    name: str


class Interrupted(Record):
    #: The call that is cancelled; null if none ran.
    job_id: Optional[str]


class RestartRequest(TypedDict, total=False):
    #: The interpreter that runs it: `default`, or a `context_id`.
    context: str


class SessionContext(Record):
    """An interpreter of a session, with its variables."""

    context_id: str


class SessionContexts(TypedDict):
    """The first one is `default`."""

    items: List[SessionContext]


class SessionFiles(TypedDict):
    """What a folder has, by name."""

    path: str
    items: List[SessionFile]


class SessionFile(Record):
    #: Relative to /output.
    path: str
    type: SessionFileType
    size_bytes: int
    modified_at: str


class JobStatus(Record):
    job_id: str
    status: ExecutionStatus
    created_at: str
    started_at: Optional[str]
    #: Why a queued job waits.
    message: Optional[str]
    cancel_requested: Optional[bool]
    #: Whose it is, if the request is about all tenants (`X-Airlock-Tenant: *`).
    tenant: Optional[str]


class InProgressResult(Record):
    job_id: str
    status: QueueStatus
    message: str
    #: 1 is next; 0 once running.
    queue_position: int


class ToolCalls(Record):
    job_id: str
    status: ExecutionStatus
    #: Those that wait for an answer, with `all` also the others, in order.
    calls: List[ToolCall]


class ToolCall(Record):
    """A call of one of the caller's functions; in lists, with the answer that it has."""

    #: Names the call. Calls and results are numbered together.
    number: int
    name: str
    arguments: Dict[str, Any]
    #: Bytes of stdout that come before it.
    stdout_at: int
    stderr_at: int
    answer: Optional[ToolAnswer]


class ToolAnswer(TypedDict, total=False):
    #: What the function returns: any JSON, null included.
    result: Any
    #: The message of the ToolError that the function raises.
    error: str


class AnsweredCall(Record):
    job_id: str
    number: int


class DerivedJob(Record):
    job_id: str
    status: ExecutionStatus
    created_at: str
    #: 1 is next; 0 once running.
    queue_position: int
    #: Why a queued job waits, if it waits for more than its turn.
    message: Optional[str]
    correlation_id: str
    parent_execution_id: str
    relationship: Relationship


class RerunRequest(TypedDict, total=False):
    job_type: str
    #: Time limit of the code in seconds, without start-up. Default: the job type's, else `default_timeout`. At most the configured `max_timeout`.
    timeout: int
    #: The same key with the same payload returns the same job, from every request that makes a job. Each tenant has keys of its own, which all its API keys share.
    idempotency_key: str
    #: What the code reads from its standard input, as UTF-8. Without it, the standard input is at its end.
    stdin: str
    #: The arguments of the code: `sys.argv[1:]`.
    args: List[str]
    #: true: Python code runs as a cell of a notebook. The record's `results` has the value of its last expression, what it passes to `display`, and matplotlib's figures; `await` works outside functions.
    results: bool
    #: Functions that the code can call by name. Each call is an event `tool_call`; the function returns what `POST /jobs/{id}/tool-calls/{number}` answers. The code runs as with `results: true`, and with `max_attempts` 1.
    tools: Sequence[Union[Tool, Callable[..., Any]]]
    #: Seconds that calls of `tools` may wait for their answers, all together; they are not part of `timeout`. Default: 300. At most the configured `max_timeout`.
    tool_timeout: int
    #: The client's own words about the job. Its record has them, and lists can be filtered by them.
    metadata: Dict[str, str]
    #: The job waits until then. It takes a place in the queue meanwhile. A time in the past is now.
    run_at: str
    #: Seconds that the job may wait for its start, from `run_at` or its submission on. If no agent has taken it by then, it ends as `timeout`.
    queue_timeout: int
    #: 1: the code never starts twice, for code with side effects; if its agent is lost, the job fails. Default 2. A try that ended before the code started is not counted, but there are two at most.
    max_attempts: int
    #: Called when the job has ended, as docs/guides/webhooks.md says. Its host must be one of `webhook_callbacks.hosts`. Reruns and forks do not inherit it.
    callback_url: str


class ForkRequestOptional(RerunRequest):
    pass


class ForkRequest(ForkRequestOptional):
    #: Source code: Python, run as /code/main.py, or what `language` or `command` runs from a file in /code.
    code: str


class ArtifactList(Record):
    job_id: str
    #: Files that the code wrote, by name.
    artifacts: List[Artifact]
    #: What was submitted.
    input_artifacts: List[Artifact]


class ExecutionPage(TypedDict):
    items: List[ExecutionRecord]
    limit: int
    offset: int
    has_more: bool
    #: Items in this response.
    count: int


class NarrowedPage(TypedDict):
    items: List[NarrowedRecord]
    limit: int
    offset: int
    has_more: bool
    #: Items in this response.
    count: int


class NarrowedRecord(Record):
    """A record with the fields of `fields` alone."""

    execution_id: str
    status: Optional[ExecutionStatus]
    job_type: Optional[str]
    job_version: Optional[str]
    created_at: Optional[str]
    started_at: Optional[str]
    ended_at: Optional[str]
    duration_ms: Optional[int]
    exit_code: Optional[int]
    stdout: Optional[str]
    stderr: Optional[str]
    output: Optional[Dict[str, Any]]
    error: Optional[ExecutionError]
    timing: Optional[Timing]
    #: As submitted; left out where there is none.
    metadata: Optional[Dict[str, str]]
    #: With `results: true` in the request, what the code showed: values passed to `display`, figures, and the value of its last expression. Left out otherwise.
    results: Optional[List[ResultItem]]
    #: true if something was left out of `results`; otherwise the field is left out.
    results_truncated: Optional[bool]
    compile: Optional[Compilation]
    #: What of the request or of /output was left out without an error: `requirements` that the service does not install, files that cannot be artifacts. Left out where there is none.
    warnings: Optional[List[str]]
    #: Left out where there is none.
    batch_id: Optional[str]
    #: The session whose call it is. Other jobs have neither this nor the two fields below.
    session_id: Optional[str]
    #: Its number among the calls of its session.
    call: Optional[int]
    #: The context in which it runs.
    context: Optional[str]
    #: files: it reads or writes files of its session. Left out of calls that run code.
    kind: Optional[Literal["files"]]
    #: Whose it is, if the request is about all tenants (`X-Airlock-Tenant: *`).
    tenant: Optional[str]
    job_ref: Optional[str]
    #: How the code got its sandbox; absent for a container of its own.
    container_backend: Optional[Literal["engine", "zygote"]]
    #: Runtime of the container engine that ran the code; null if none did.
    container_runtime: Optional[str]
    artifacts: Optional[List[Artifact]]
    input_artifacts: Optional[List[Artifact]]
    resource_usage: Optional[ResourceUsage]
    #: SHA-256 of the code.
    code_hash: Optional[str]
    #: SHA-256 of the input data.
    input_hash: Optional[str]
    parent_execution_id: Optional[str]
    relationship: Optional[Relationship]
    stdout_truncated: Optional[bool]
    stderr_truncated: Optional[bool]
    idempotency_key: Optional[str]
    #: As submitted. Like the fields below, it is left out where it was not given.
    stdin: Optional[str]
    args: Optional[List[str]]
    language: Optional[str]
    command: Optional[List[str]]
    compile_command: Optional[List[str]]
    compile_timeout: Optional[int]
    tools: Optional[List[Tool]]
    tool_timeout: Optional[int]
    run_at: Optional[str]
    queue_timeout: Optional[int]
    max_attempts: Optional[int]
    callback_url: Optional[str]
    #: The W3C trace context of the request that made the job.
    traceparent: Optional[str]
    #: How many times an agent has taken the job. This field and those below it are only in a record with `view=all`.
    attempt: Optional[int]
    #: Identifies the request that made the job in the service's log.
    correlation_id: Optional[str]
    mode: Optional[SubmissionMode]
    #: Time limit of the code in seconds.
    timeout: Optional[int]
    startup_timeout: Optional[int]
    requirements: Optional[List[str]]
    #: Every attempt, the last or running one included; of more than 20 that were lost, the latest.
    attempts: Optional[List[Attempt]]


class ExecutionDeleted(Record):
    execution_id: str
    deleted: Literal[True]


class JobType(Record):
    """A named environment for jobs."""

    name: str
    #: Packages that a build installs into the image.
    requirements: List[str]
    #: Python version of the built image; before a build, of the image that it starts from.
    python_version: str
    memory_limit: str
    #: CPU limit: number of CPUs.
    cpu_limit: float
    #: Processes and threads that a job may have at once.
    pids: int
    #: Seconds; default timeout of its jobs.
    timeout: int
    #: Whether a connected agent has the image that jobs of this type run on: the built image, or the base image if there is nothing to install.
    image_exists: bool
    #: Languages that its jobs may name. Once an agent has looked into the image, only those that the image has.
    languages: List[Language]


class Language(Record):
    name: str
    #: Version of its compiler or interpreter; null if it is not known.
    version: Optional[str]


class BuildResult(Record):
    status: Literal["built"]
    job_type: str
    #: `<job_type>@sha256:<digest>`: the `job_ref` in the records of its jobs.
    version: str
    digest: str
    image_ref: str


class Build(Record):
    status: BuildStatus
    job_type: str
    image_ref: str
    #: `<job_type>@sha256:<digest>`: the `job_ref` in the records of its jobs.
    version: Optional[str]
    digest: Optional[str]
    error: Optional[ExecutionError]
    created_at: str
    started_at: Optional[str]
    ended_at: Optional[str]
    #: Output of the build so far; at most 1 MiB.
    log: str


class DeadLetterPage(TypedDict):
    items: List[DeadLetter]
    limit: int
    offset: int
    has_more: bool
    #: Items in this response.
    count: int


class DeadLetter(Record):
    id: int
    job_id: str
    job_data: DeadLetterJob
    error_type: ExecutionErrorType
    error_message: str
    #: Attempts after the first.
    retry_count: int
    created_at: str
    client_ip: str
    correlation_id: str
    #: Whose it is, if the request is about all tenants (`X-Airlock-Tenant: *`).
    tenant: Optional[str]


class DeadLetterJob(Record):
    """What was submitted."""

    code: str
    input_data: Dict[str, Any]
    job_type: str


class DeadLetterStats(Record):
    total: int
    by_error_type: Dict[str, int]
    oldest_created_at: Optional[str]


class DeadLetterDeleted(Record):
    id: int
    deleted: Literal[True]


class WebhookDeliveryPage(TypedDict):
    items: List[WebhookDelivery]
    limit: int
    has_more: bool
    #: Items in this response.
    count: int


class WebhookDelivery(Record):
    id: int
    #: The header `webhook-id` of every call: the same for all receivers and tries.
    webhook_id: str
    type: WebhookType
    job_id: str
    #: Name of the configured receiver; null for a `callback_url`.
    endpoint: Optional[str]
    callback_url: Optional[str]
    status: DeliveryStatus
    #: Calls that were made.
    attempts: int
    #: HTTP status of the last answer.
    last_status_code: Optional[int]
    #: Why the last call failed.
    last_error: Optional[str]
    created_at: str
    next_attempt_at: Optional[str]
    ended_at: Optional[str]
    #: Whose it is, if the request is about all tenants (`X-Airlock-Tenant: *`).
    tenant: Optional[str]


class WebhookEventPage(TypedDict):
    #: Oldest first.
    items: List[WebhookMessage]
    #: Give it as `after` in the next request.
    cursor: str
    #: Whether there are more events: if so, ask again at once.
    has_more: bool
    #: Ask again within this many seconds. An execution that ends later may not become an event.
    listening_s: int


class WebhookMessage(Record):
    """One event, with the body that a call to a receiver would have."""

    #: What the header `webhook-id` of a call with this event says.
    webhook_id: str
    event: WebhookEvent


class Usage(Record):
    """What a tenant uses and may use."""

    tenant: str
    usage: TenantUsage
    limits: TenantLimits


class TenantUsage(Record):
    """What a tenant uses now."""

    #: Jobs that wait.
    queued: int
    #: Jobs that run.
    running: int
    #: Bytes of code, input, metadata, output, artifacts and files. Those of a removed artifact or file count until they are gone.
    stored_bytes: int
    #: Seconds of CPU time of the jobs that ended today (UTC).
    cpu_s_today: float


class TenantLimits(TypedDict, total=False):
    """What a tenant may use; null: no limit."""

    #: Jobs that may wait at once.
    max_queued: Optional[int]
    #: Jobs that may run at once; others wait. With it, `max_queued` is at least a default of 1000.
    max_running: Optional[int]
    #: Bytes of its code, input, metadata, output, artifacts and files together. What its running jobs write counts, but is stored even above the limit.
    max_stored_bytes: Optional[int]
    #: Seconds of CPU time of its jobs that end on one day (UTC).
    max_cpu_s_day: Optional[int]
    #: Requests of all its keys together in `api_rate_limit_window_seconds`.
    max_requests: Optional[int]


class Health(Record):
    #: degraded: no container engine is available, or the breaker is open.
    status: Literal["healthy", "degraded"]
    docker_available: bool
    gvisor_available: bool
    #: An agent forks jobs; absent if none does.
    forks_available: Optional[Literal[True]]
    circuit_breaker: CircuitBreaker
    version: str
    production_mode: bool
    queue_stats: QueueStats


class CircuitBreaker(Record):
    state: BreakerState
    failure_count: int
    success_count: int
    last_failure: Optional[str]


class QueueStats(Record):
    """max_workers is the sum over the connected agents."""

    pending: int
    running: int
    max_workers: int
    max_queue_size: int


class PoolStats(Record):
    workers: WorkerStats
    queue: QueueUse
    agents: List[PoolAgent]
    #: running / max, 0 without agents.
    utilization: float


class WorkerStats(Record):
    max: int
    running: int
    idle: int


class QueueUse(Record):
    pending: int
    max: int


class PoolAgent(Record):
    """An agent that has not left. A silent one is removed after an hour."""

    id: str
    name: str
    version: str
    #: working: all slots are in use; unwell: it gets no jobs; draining: an operator has ended its taking of new jobs; silent: it has not contacted the API for `liveness_s`, and no other count includes it.
    state: Literal["working", "idle", "unwell", "silent", "draining"]
    #: Why it gets no jobs.
    problem: Optional[str]
    labels: Dict[str, str]
    #: Executions it runs at once.
    slots: int
    running: int
    sessions: Optional[SessionUse]
    gpus: GpuCount
    #: Containers that wait for a job, for all job types.
    warm: int
    pool: List[PoolKind]
    engine: EngineHealth
    breaker: CircuitBreaker
    last_seen: str


class SessionUse(Record):
    """Sessions that an agent holds, and has room for. Left out if it takes none."""

    held: int
    max: int


class GpuCount(Record):
    """free: GPUs that no container uses."""

    total: int
    free: int


class PoolKind(Record):
    """Containers of one job type on one runtime."""

    job_type: str
    #: null: the engine's default.
    runtime: Optional[str]
    backend: Optional[ContainerBackend]
    #: Containers that wait for a job.
    ready: int
    #: Containers that are being started ahead of a job.
    starting: int
    #: Containers that run a job.
    in_use: int


class EngineHealth(Record):
    """An agent's container engine."""

    available: bool
    version: Optional[str]
    runtimes: List[str]
    #: Calls to the engine that failed since the agent started.
    errors: Optional[List[EngineErrors]]
    #: Why the agent forks no jobs; null if it does.
    fork_problem: Optional[str]
    #: Built images that the agent needs and does not have; absent if there are none.
    missing_images: Optional[List[MissingImage]]


class EngineErrors(Record):
    """An agent's calls to its engine that failed."""

    operation: str
    kind: str
    count: int


class MissingImage(Record):
    """A built image that an agent needs and does not have."""

    image: str
    reason: str


class PoolHistory(Record):
    """The oldest point first. The service is recorded once a minute. A time without a point is one in which no API ran."""

    points: List[HistoryPoint]


class HistoryPoint(Record):
    #: The end of the time that the point is for.
    at: str
    #: Executions that waited: the most of its minutes.
    pending: int
    #: Executions that ran: the most of its minutes.
    running: int
    #: What the live agents could run at once: the most of its minutes.
    max_workers: int
    ended: EndedCounts


class EndedCounts(Record):
    """Executions that ended since the point before."""

    succeeded: Optional[int]
    failed: Optional[int]
    timeout: Optional[int]
    oom: Optional[int]
    cancelled: Optional[int]


class HostList(Record):
    hosts: List[JoinedHost]


class JoinedHost(Record):
    """A host that has joined with a code."""

    id: str
    name: str
    joined_at: str
    #: When its token was last used.
    last_used_at: Optional[str]
    #: Since when its token is void.
    revoked_at: Optional[str]
    #: When an operator asked the host to replace its token. Absent once the new token is in use.
    rotation_asked_at: Optional[str]
    #: Ids of its agents, as in `GET /pool/stats`: one for each start of the program.
    agents: List[str]


class Invitation(Record):
    """A code with which one host can join, once."""

    #: Is shown once; the service stores only its hash.
    code: str
    name: Optional[str]
    expires_at: str


class InvitationRequest(TypedDict, total=False):
    #: Name of the host; default: the host says its own.
    name: str
    #: Seconds until the code can no longer be used.
    expires_in_s: int


class AuditPage(TypedDict):
    items: List[AuditEntry]
    limit: int
    #: Whether there are older entries: ask again with `before` = the last `id`.
    has_more: bool
    #: Items in this response.
    count: int


class AuditEntry(Record):
    id: int
    at: str
    #: The key of the request; null if a command did it, or if keys are not required.
    key_id: Optional[str]
    #: `shell` if a command did it.
    key_name: str
    #: Whose thing was changed.
    tenant: str
    action: AuditAction
    #: Id or name of what was changed.
    target: str
    #: Never a key, code or input.
    detail: Optional[Dict[str, Any]]
    correlation_id: str
    client_ip: Optional[str]


class OwnKey(Record):
    """The key of a request."""

    #: As an operator named it; `api_keys` or `operator_keys` for one of the configuration, `anybody` if none is needed.
    name: str
    tenant: str
    #: What it may do.
    scopes: List[Scope]


class NewApiKey(Record):
    #: Stays the same when the key is rotated.
    id: str
    name: str
    tenant: str
    scopes: List[Scope]
    created_at: str
    #: `id` of the key that made it; null if `npm run keys` did.
    created_by: Optional[str]
    expires_at: Optional[str]
    #: Since when the key is void.
    revoked_at: Optional[str]
    #: Is written at most once a minute.
    last_used_at: Optional[str]
    #: The time until which a former key is valid; of several, the latest.
    old_valid_until: Optional[str]
    #: Is shown once; the service stores only its hash.
    key: str


class KeyRequestOptional(TypedDict, total=False):
    #: Whose records the key sees; default: the caller's tenant. Is made if it is new.
    tenant: str
    #: Seconds until the key is void; default: never.
    expires_in_s: int
    #: The form of the key: `airlock` is `alk_…`; `e2b` is `e2b_…`, which E2B's clients before 2.50 need.
    format: Literal["airlock", "e2b"]


class KeyRequest(KeyRequestOptional):
    #: For people: who uses the key.
    name: str
    #: Only scopes that the caller's own key has.
    scopes: List[Scope]


class ApiKeyList(TypedDict):
    keys: List[ApiKey]


class ApiKey(Record):
    """A key that operators made. It never shows the key itself."""

    #: Stays the same when the key is rotated.
    id: str
    name: str
    tenant: str
    scopes: List[Scope]
    created_at: str
    #: `id` of the key that made it; null if `npm run keys` did.
    created_by: Optional[str]
    expires_at: Optional[str]
    #: Since when the key is void.
    revoked_at: Optional[str]
    #: Is written at most once a minute.
    last_used_at: Optional[str]
    #: The time until which a former key is valid; of several, the latest.
    old_valid_until: Optional[str]


class KeyRotation(TypedDict, total=False):
    #: Seconds for which the old key stays valid. Older keys stay valid until the times that their own rotations set; with 0, all of them are void at once.
    old_valid_s: int
    #: The form of the key: `airlock` is `alk_…`; `e2b` is `e2b_…`, which E2B's clients before 2.50 need.
    format: Literal["airlock", "e2b"]


class TenantList(Record):
    tenants: List[Tenant]


class Tenant(Record):
    name: str
    created_at: str
    limits: TenantLimits
    usage: TenantUsage


class Probe(Record):
    status: Literal["ok"]
