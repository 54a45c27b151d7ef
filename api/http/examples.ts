import { z } from "@hono/zod-openapi";
import type {
  ArtifactList,
  ExecutionPage,
  ExecutionRecord,
  InProgressResult,
  JobEvent,
  JobStatus,
  SyncResult,
} from "../../shared/wire/executions.ts";
import type {
  DeadLetter,
  DeadLetterPage,
  DeadLetterStats,
  DerivedJob,
  ExecuteRequest,
  ForkRequest,
  RerunRequest,
  SubmittedJob,
} from "../../shared/wire/submissions.ts";
import {
  contentTypes,
  encodeAs,
  type EventFormat,
  formatCursor,
  newCursor,
} from "../events/follow.ts";

/** Requests and answers that the OpenAPI document shows. They are all about the same few jobs. */

export const jobId = "019aa5f0-6c1e-7c3a-8d53-2f1f3a6b9c10";
const childId = "019aa5f3-1b70-7e44-9c02-6a8d2f4e7b31";
export const sessionId = "019aa5f0-5b0d-7d11-9e42-7c1a0b8f3d20";
export const correlationId = "019aa5f0-6c1d-7f0a-b1c2-3d4e5f607182";
export const at = (seconds: string): string => `2026-11-21T09:30:${seconds}Z`;
const codeHash = "9f2feb0f1ef425b292f2f94bc8482494df430413cf0aa2e5d8a3a3d2ffa0ed63";
const inputHash = "3f1d6b4e0cf0a2a8f0a6b8f6f6a0d1f5b2c0a9f7e4d3c2b1a0f9e8d7c6b5a493";
const plotHash = "b94d27b9934d3e08a52e52d7da7dabfac484efe37a5380ee9088f7ace2efcde9";

type Given<T> = Pick<T, keyof T & "code"> & Partial<T>;
type Examples<T> = Record<string, { summary: string; value: T }>;

const summing = `import json

with open("/input/data.json") as file:
    numbers = json.load(file)["numbers"]

print("adding", len(numbers), "numbers")

with open("/output/result.json", "w") as file:
    json.dump({"sum": sum(numbers)}, file)
`;
const input = { numbers: [1, 2, 39] };

export const executeExamples: Examples<Given<ExecuteRequest>> = {
  hello: { summary: "Print", value: { code: 'print("Hello from inside the container")\n' } },
  sum: {
    summary: "Input and output",
    value: { code: summing, input_data: input, timeout: 10 },
  },
  inputs: {
    summary: "Arguments and a standard input",
    value: {
      code: "import sys\n\nprint(sys.argv[1], sum(map(int, sys.stdin)))\n",
      args: ["total:"],
      stdin: "1\n2\n39\n",
    },
  },
  artifact: {
    summary: "Write a file to download",
    value: {
      code: 'with open("/output/table.csv", "w") as file:\n    file.write("a,b\\n1,2\\n")\n',
    },
  },
  failure: { summary: "An exception", value: { code: 'raise ValueError("bad input")\n' } },
};

export const executeAsyncExamples: typeof executeExamples = {
  sum: {
    summary: "Input and output",
    value: { code: summing, input_data: input, timeout: 10 },
  },
  idempotent: {
    summary: "With an idempotency key",
    value: { code: summing, input_data: input, idempotency_key: "order-4711" },
  },
  scheduled: {
    summary: "At six, at most once, with metadata",
    value: {
      code: summing,
      input_data: input,
      run_at: "2026-11-22T06:00:00Z",
      queue_timeout: 300,
      max_attempts: 1,
      metadata: { order: "4711" },
    },
  },
};

export const rerunExamples: Examples<RerunRequest> = {
  same: { summary: "As it was", value: {} },
  longer: { summary: "With more time", value: { timeout: 120 } },
  otherInputs: { summary: "With other arguments", value: { args: ["sum:"] } },
};

export const forkExample: Given<ForkRequest> = {
  code: 'import json\n\nprint(max(json.load(open("/input/data.json"))["numbers"]))\n',
};

export const syncResult: SyncResult = {
  success: true,
  output: { sum: 42 },
  stdout: "adding 3 numbers\n",
  stderr: "",
  exit_code: 0,
  execution_time: 0.021,
  error: null,
  job_type: "default",
  job_id: jobId,
};

export const submittedJob: SubmittedJob = {
  job_id: jobId,
  status: "queued",
  created_at: at("00.000"),
  queue_position: 1,
  correlation_id: correlationId,
};

export const derivedJob: DerivedJob = {
  ...submittedJob,
  job_id: childId,
  created_at: at("30.000"),
  parent_execution_id: jobId,
  relationship: "rerun",
};

export const jobStatus: JobStatus = {
  job_id: jobId,
  status: "running",
  created_at: at("00.000"),
  started_at: at("00.012"),
};

export const inProgress: InProgressResult = {
  job_id: jobId,
  status: "pending",
  message: "Waiting for a worker, at position 1.",
  queue_position: 1,
};

export const record: ExecutionRecord = {
  execution_id: jobId,
  status: "succeeded",
  job_type: "default",
  job_version: "latest",
  created_at: at("00.000"),
  started_at: at("00.012"),
  ended_at: at("00.140"),
  duration_ms: 128,
  exit_code: 0,
  stdout: "adding 3 numbers\n",
  stderr: "",
  output: { sum: 42 },
  error: null,
  timing: {
    startup_ms: 96,
    dep_install_ms: 0,
    execution_ms: 21,
    total_ms: 121,
    phase_at_exit: "completed",
  },
};

const fullRecord: ExecutionRecord = {
  ...record,
  job_ref: `default@sha256:${plotHash}`,
  container_runtime: "runsc",
  artifacts: [
    { name: "plot.png", size_bytes: 20_481, sha256: plotHash, content_type: "image/png" },
  ],
  input_artifacts: [
    {
      name: "_code.py",
      size_bytes: 214,
      sha256: codeHash,
      content_type: "text/x-python; charset=utf-8",
    },
    { name: "_input.json", size_bytes: 20, sha256: inputHash, content_type: "application/json" },
  ],
  resource_usage: { max_rss_mb: 11.4, cpu_time_ms: 19, wall_time_ms: 21 },
  code_hash: codeHash,
  input_hash: inputHash,
  parent_execution_id: null,
  relationship: null,
  stdout_truncated: false,
  stderr_truncated: false,
  idempotency_key: "order-4711",
  metadata: { order: "4711" },
  queue_timeout: 300,
  max_attempts: 1,
};

/** Its first agent was lost. */
const wholeRecord: ExecutionRecord = {
  ...fullRecord,
  max_attempts: undefined,
  attempt: 2,
  correlation_id: correlationId,
  mode: "async",
  timeout: 10,
  startup_timeout: 60,
  requirements: [],
  attempts: [
    {
      attempt: 1,
      agent_id: "6d1f0c52-90f6-4c5e-8f3d-0a4f4a4b2d10",
      agent: "host-1",
      claimed_at: "2026-11-21T09:26:40.004Z",
      code_started_at: "2026-11-21T09:26:40.090Z",
      ended_at: "2026-11-21T09:29:59.871Z",
      outcome: "lease_expired",
      error: null,
    },
    {
      attempt: 2,
      agent_id: "a7c1c0de-3b2f-4f7e-9a57-5a1de2c7f0b4",
      agent: "host-2",
      claimed_at: at("00.012"),
      code_started_at: at("00.108"),
      ended_at: at("00.140"),
      outcome: "result",
      error: null,
    },
  ],
};

const failedRecord: ExecutionRecord = {
  ...record,
  status: "failed",
  exit_code: 1,
  stdout: "",
  stderr:
    'Traceback (most recent call last):\n  File "/code/main.py", line 1, in <module>\n    raise ValueError("bad input")\nValueError: bad input\n',
  output: null,
  error: { type: "value_error", message: "ValueError: bad input", phase: "execution" },
  timing: {
    startup_ms: 96,
    dep_install_ms: 0,
    execution_ms: 18,
    total_ms: 118,
    phase_at_exit: "failed",
  },
};

export const recordExamples: Examples<ExecutionRecord> = {
  succeeded: { summary: "Succeeded", value: record },
  failed: { summary: "Failed", value: failedRecord },
  full: { summary: "With view=full", value: fullRecord },
  all: { summary: "With view=all", value: wholeRecord },
};

const page = { limit: 100, offset: 0, has_more: false, count: 1 };
export const executionPage: ExecutionPage = { items: [record], ...page };

const deadLetter: DeadLetter = {
  id: 1,
  job_id: jobId,
  job_data: { code: 'raise ValueError("bad input")\n', input_data: {}, job_type: "default" },
  error_type: "value_error",
  error_message: "ValueError: bad input",
  retry_count: 0,
  created_at: at("00.140"),
  client_ip: "127.0.0.1",
  correlation_id: correlationId,
};
export const deadLetterPage: DeadLetterPage = { items: [deadLetter], ...page };

export const deadLetterStats: DeadLetterStats = {
  total: 3,
  by_error_type: { value_error: 2, oom: 1 },
  oldest_created_at: at("00.140"),
};

export const artifactList: ArtifactList = {
  job_id: jobId,
  artifacts: fullRecord.artifacts ?? [],
  input_artifacts: fullRecord.input_artifacts ?? [],
};

export const eventsDescription =
  "Everything that happens to a job, as Server-Sent Events, or with `Accept: application/x-ndjson` as lines `{id, event, data}`; an empty line means nothing. It works for queued, running and ended jobs alike. After a break, `Last-Event-ID` or `after` with the last id continues without loss or repeat. The server may end the answer before `end`: ask again. `data` always has `job_id`, `attempt` and `at`. The events: `status` (`queued` with `reason` and `position`, `running` with `agent`), `stdout` and `stderr` (`text`; all texts joined are the record's stream), `display` (what the code showed), `tool_call` (the code has called one of the `tools`, and waits for its answer), `held` (the rest of `stream` comes when the code has ended), `truncated` (the middle of `stream` was left out), `retry` (the attempt was lost; output starts from zero), and one `end` (the record without its streams; an output above 256 KiB is left out, and `output_url` leads to it). Ignore events that you do not know.";

const running = { ...newCursor(1), state: "running" } as const;
const of = (time: string) => ({ job_id: jobId, attempt: 1, at: time });
const { stdout: _stdout, stderr: _stderr, ...bare } = record;

const events: JobEvent[] = [
  {
    event: "status",
    id: formatCursor(running),
    data: { ...of(at("00.004")), status: "running", agent: "host-1" },
  },
  {
    event: "stdout",
    id: formatCursor({ ...running, stdout: 17 }),
    data: { ...of(at("00.030")), text: "adding 3 numbers\n" },
  },
  {
    event: "end",
    id: formatCursor({ ...running, state: "ended", stdout: 17 }),
    data: { ...of(at("00.034")), ...bare },
  },
];

const shown = (format: EventFormat): string =>
  events.map((event) => new TextDecoder().decode(encodeAs(format)(event))).join("");

export const serverSentEvents = shown("sse");
export const eventLines = shown("lines");

/** The description of an answer that may come as events instead. */
export const asEvents = {
  [contentTypes.sse]: { schema: z.string(), example: serverSentEvents },
} as const;
