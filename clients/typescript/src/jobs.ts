import {
  AirlockError,
  ConflictError,
  ConnectionError,
  NoAnswerError,
  notAirlock,
  TooLargeError,
  WaitTimeoutError,
} from "./errors.ts";
import type {
  AsyncSubmitRequest,
  Batch,
  DeadLetter,
  DeadLetterStats,
  DerivedJob,
  ExecutionErrorType,
  ExecutionRecord,
  ExecutionStatus,
  ForkRequest,
  JobStatus,
  RerunRequest,
  ResultItem,
  SubmittedBatch,
  SubmittedJob,
  Tool,
  ToolCall,
} from "./generated.ts";
import {
  type Ask,
  type CallOptions,
  pages,
  pathOf,
  pauseMs,
  readLines,
  sleep,
  type Transport,
} from "./transport.ts";

/** Python source, or a request with all its fields. */
export type Job = string | AsyncSubmitRequest;

export interface WaitOptions extends CallOptions {
  /**
   * Seconds after which to stop waiting, with a WaitTimeoutError, or a NoAnswerError where the service is silent.
   * The job goes on. Default: never.
   */
  waitS?: number | undefined;
  /** Gets the standard output as it happens, in pieces, from its beginning. */
  onStdout?: ((text: string) => unknown) | undefined;
  onStderr?: ((text: string) => unknown) | undefined;
  /** Gets each value that the code shows, as it shows it: in sessions, and in jobs with `results: true` or tools. */
  onResult?: ((item: ResultItem) => unknown) | undefined;
  /** Functions that the code can call. `run` gives their descriptions to the code; `wait` only answers. */
  tools?: readonly OwnTool[] | undefined;
}

/** Which executions to list. */
export interface ListFilters {
  status?: ExecutionStatus | readonly ExecutionStatus[];
  job_type?: string;
  batch_id?: string;
  parent_execution_id?: string;
  session_id?: string;
  metadata?: Record<string, string>;
  /** A text in the type or message of the error. */
  error?: string;
  created_after?: string;
  created_before?: string;
  /** How many at most. Default: all. */
  limit?: number;
}

export interface Jobs {
  /**
   * Runs code to its end. Code that fails is no error of this call: the record says how it ended.
   * If the signal aborts or a callback throws, the job is cancelled. An error has the id of the job as `jobId`.
   */
  readonly run: (job: Job, options?: WaitOptions) => Promise<ExecutionRecord>;
  /** Queues code. With its own idempotency key, it is safe to repeat, which the client does. */
  readonly submit: (job: Job, options?: CallOptions) => Promise<SubmittedJob>;
  /** The full record of a job, once it has ended. */
  readonly wait: (jobId: string, options?: WaitOptions) => Promise<ExecutionRecord>;
  /** The full record of a job as it is now, whether it has ended or not. */
  readonly get: (jobId: string, options?: CallOptions) => Promise<ExecutionRecord>;
  /** Asks a job to end. */
  readonly cancel: (jobId: string, options?: CallOptions) => Promise<JobStatus>;
  /** Runs a job again: the same code, the same input. */
  readonly rerun: (
    jobId: string,
    fields?: RerunRequest,
    options?: CallOptions,
  ) => Promise<DerivedJob>;
  /** Runs new code on the input of a job. */
  readonly fork: (
    jobId: string,
    code: string | ForkRequest,
    options?: CallOptions,
  ) => Promise<DerivedJob>;
  /** Queues up to 1,000 jobs in one request. Each has its own answer, in the order of the jobs. */
  readonly batch: (
    jobs: readonly Job[],
    options?: CallOptions & { atomic?: boolean; idempotency_key?: string },
  ) => Promise<SubmittedBatch>;
  /** The full records, the newest first. They are fetched page by page, as they are read. */
  readonly list: (
    filters?: ListFilters,
    options?: CallOptions,
  ) => AsyncGenerator<ExecutionRecord, void>;
}

/** How much later than asked the service's own answer may come. */
const SLACK_MS = 2000;
/** Shorter than the time that proxies allow for an answer. */
const ROUND_S = 25;
/** How long an aborted run may take to cancel its job. */
const LEAVING_MS = 3000;

/** Submits a job and waits for its end, as `run` does. */
export type RunToEnd = (
  submit: (options: CallOptions) => Promise<{ job_id: string }>,
  options?: WaitOptions,
) => Promise<ExecutionRecord>;

export function jobs(ask: Ask, stream: Stream, service: Transport): Jobs & { runToEnd: RunToEnd } {
  const submit: Jobs["submit"] = (job, options) =>
    ask("/execute/async", { method: "POST", body: withCode(job) }, options);

  const cancel: Jobs["cancel"] = async (id, options) =>
    ask(`${pathOf("jobs", id)}/cancel`, { method: "POST" }, options);

  const wait: Jobs["wait"] = async (jobId, options = {}) => {
    const {
      waitS = Infinity,
      onStdout,
      onStderr,
      onResult,
      tools = [],
      signal: own,
      ...call
    } = options;
    const until = performance.now() + waitS * 1000;
    const leftMs = () => Math.max(0, until - performance.now());
    if (onStdout || onStderr || onResult || tools.length > 0) {
      const { take, failed } = answering(ask, jobId, tools, { ...call, signal: own });
      const told = within(
        leftMs(),
        own ? AbortSignal.any([own, failed]) : failed,
        async (signal) => {
          for await (const { event, data } of stream(jobId, { ...call, signal })) {
            if (event === "stdout") await onStdout?.(data.text);
            else if (event === "stderr") await onStderr?.(data.text);
            else if (event === "display") await onResult?.(data);
            else if (event === "tool_call") take(data);
          }
        },
      );
      await told.catch((error: unknown) => {
        if (!(error instanceof NoAnswerError)) throw error;
      });
    }
    const limitMs = call.timeoutMs ?? service.timeoutMs;
    const path = `${pathOf("jobs", jobId)}/result`;
    return within(leftMs() + SLACK_MS, own, async (signal) => {
      for (;;) {
        const timeout = Math.min(ROUND_S, Math.ceil(leftMs() / 1000));
        const query = { wait: true, timeout, view: "full" };
        const timeoutMs = limitMs && limitMs + timeout * 1000;
        try {
          return await ask<ExecutionRecord>(path, { query }, { ...call, timeoutMs, signal });
        } catch (error) {
          if (!(error instanceof WaitTimeoutError)) throw error;
          if (leftMs() > 0) continue;
          const message = `Job ${jobId} did not end within \`waitS\`. The job goes on.`;
          throw new WaitTimeoutError(error.status, message, error);
        }
      }
    });
  };

  const runToEnd: RunToEnd = async (submit, options = {}) => {
    const { waitS = Infinity, tools: _, ...call } = options;
    const until = performance.now() + waitS * 1000;
    call.signal?.throwIfAborted();
    const { job_id } = await within(waitS * 1000 + SLACK_MS, undefined, (late) =>
      // Without this, nobody would know the job that the aborted request has made.
      afterwards(call.signal, late, (signal) => submit({ ...call, signal })),
    );
    try {
      call.signal?.throwIfAborted();
      const leftS = Math.max(0, (until - performance.now()) / 1000);
      return await wait(job_id, { ...options, waitS: leftS });
    } catch (error) {
      const isOurs = error instanceof AirlockError;
      if (isOurs) error.jobId = job_id;
      // Also if a callback threw. If the job has ended meanwhile, there is nothing to cancel.
      if (!isOurs || call.signal?.aborted) {
        await cancel(job_id, { signal: AbortSignal.timeout(LEAVING_MS) }).catch(() => {});
      }
      throw error;
    }
  };

  const run: Jobs["run"] = (job, options) =>
    runToEnd((call) => submit(withTools(job, options), call), options);

  return {
    run,
    runToEnd,
    submit,
    wait,
    cancel,
    rerun: async (id, fields = {}, options) =>
      ask(`${pathOf("jobs", id)}/rerun`, { method: "POST", body: fields }, options),
    fork: async (id, code, options) =>
      ask(`${pathOf("jobs", id)}/fork`, { method: "POST", body: withCode(code) }, options),
    get: async (id, options) => ask(pathOf("executions", id), { query: { view: "full" } }, options),
    batch: (list, { atomic = false, idempotency_key, ...options } = {}) => {
      const body = { jobs: list.map(withCode), atomic, idempotency_key };
      return ask("/execute/batch", { method: "POST", body }, options);
    },
    list: ({ metadata = {}, ...filters } = {}, options) => {
      const pairs = Object.entries(metadata).map(([name, value]) => `${name}:${value}`);
      const query = { ...filters, metadata: pairs, view: "full" };
      return pages<ExecutionRecord>(ask, "/executions", query, (one) => one.execution_id, options);
    },
  };
}

export function withCode<Request extends object>(
  code: string | Request,
): Request | { code: string } {
  return typeof code === "string" ? { code } : code;
}

/** What is sent for code with `tools`. */
export function withTools<Request extends object>(
  code: string | Request,
  { tools }: WaitOptions = {},
) {
  const request = withCode(code);
  return tools ? { ...request, tools: describe(tools) } : request;
}

/** The longest time of a timer. */
const LONGEST_MS = 2 ** 31 - 1;

/** Runs work whose signal also aborts after a time, with a NoAnswerError. */
async function within<Result>(
  ms: number,
  own: AbortSignal | undefined,
  work: (signal: AbortSignal | undefined) => Promise<Result>,
): Promise<Result> {
  if (!(ms < LONGEST_MS)) return work(own);
  const late = AbortSignal.timeout(Math.ceil(ms));
  try {
    return await work(own ? AbortSignal.any([own, late]) : late);
  } catch (error) {
    if (!late.aborted || own?.aborted) throw error;
    throw new NoAnswerError("The service did not answer within `waitS`.");
  }
}

/** Runs work whose signal aborts with `late`, and a moment after `own`. */
async function afterwards<Result>(
  own: AbortSignal | undefined,
  late: AbortSignal | undefined,
  work: (signal: AbortSignal | undefined) => Promise<Result>,
): Promise<Result> {
  if (!own) return work(late);
  const ending = new AbortController();
  let timer: ReturnType<typeof setTimeout> | undefined;
  const leave = () => {
    timer = setTimeout(() => ending.abort(own.reason), LEAVING_MS);
  };
  own.addEventListener("abort", leave, { once: true });
  try {
    return await work(late ? AbortSignal.any([late, ending.signal]) : ending.signal);
  } finally {
    own.removeEventListener("abort", leave);
    clearTimeout(timer);
  }
}

type Common = { job_id: string; attempt: number; at: string };
type Named<Name extends string, Data> = { id?: string; event: Name; data: Common & Data };

/** What happens to a job. Newer services may send other events: ignore what you do not know. */
export type JobEvent =
  | Named<"status", { status: "queued"; reason: string; position: number }>
  | Named<"status", { status: "running"; agent: string | null }>
  | Named<"stdout" | "stderr", { text: string }>
  | Named<"display", ResultItem>
  | Named<"tool_call", ToolCall>
  | Named<"held", { stream: "stdout" | "stderr"; offset: number }>
  | Named<"truncated", { stream: "stdout" | "stderr" }>
  | Named<"retry", object>
  | Named<"end", Omit<ExecutionRecord, "stdout" | "stderr" | "results"> & { output_url?: string }>;

export interface StreamOptions extends CallOptions {
  /** The id of an event: only what came after it. */
  after?: string | undefined;
}

/**
 * The events of a job, from its submission to its `end`, also of a job that has ended. After a break
 * of the connection it goes on where it was; it throws once `retries` breaks in a row brought nothing.
 */
export type Stream = (jobId: string, options?: StreamOptions) => AsyncGenerator<JobEvent, void>;

/** The service sends an empty line more often than this. */
const SILENCE_MS = 60_000;

export function stream({ open, retries }: Pick<Transport, "open" | "retries">): Stream {
  return async function* events(jobId, { after, ...call } = {}) {
    const path = `${pathOf("jobs", jobId)}/events`;
    const init = { headers: { Accept: "application/x-ndjson" } };
    let cursor = after;
    for (let breaks = 0; ;) {
      const query = cursor === undefined ? "" : `?after=${encodeURIComponent(cursor)}`;
      const answer = await open(path + query, init, call);
      // The cursor is that of the end.
      if (answer.status === 204 || !answer.body) return;
      let isFruitless = true;
      try {
        for await (const line of readLines(answer.body, SILENCE_MS)) {
          breaks = 0;
          isFruitless = false;
          if (line === "") continue;
          const event = parse(line);
          cursor = event.id ?? cursor;
          yield event;
          if (event.event === "end") return;
        }
        if (isFruitless) throw new ConnectionError("The events ended before the job's end.");
      } catch (error) {
        call.signal?.throwIfAborted();
        if (!(error instanceof ConnectionError) || ++breaks > (call.retries ?? retries)) {
          throw error;
        }
      }
      await sleep(pauseMs(Math.max(1, breaks)), call.signal);
    }
  };
}

function parse(line: string): JobEvent {
  try {
    return JSON.parse(line) as JobEvent;
  } catch {
    throw new ConnectionError(notAirlock);
  }
}

/** Answers the calls of a job, all that wait at once. */
interface Answering {
  readonly take: (call: ToolCall) => void;
  /** Aborts when an answer could not be sent: the code would wait in vain. */
  readonly failed: AbortSignal;
}

function answering(
  ask: Ask,
  jobId: string,
  tools: readonly OwnTool[],
  options: CallOptions,
): Answering {
  const failure = new AbortController();

  async function send(number: number, answer: object): Promise<void> {
    const path = `${pathOf("jobs", jobId)}/tool-calls/${number}`;
    await ask(path, { method: "POST", body: answer }, options);
  }

  async function answer({ number, name, arguments: given }: ToolCall): Promise<void> {
    const tool = tools.find((one) => one.name === name);
    if (!tool) return;
    const outcome = await outcomeOf(tool, given);
    try {
      await send(number, outcome);
    } catch (error) {
      // It has this answer already, or the job has ended.
      if (error instanceof ConflictError) return;
      const problem = whyUnfit(error);
      if (problem === undefined) throw error;
      await send(number, { error: problem });
    }
  }

  return {
    take: (call) => void answer(call).catch((error: unknown) => failure.abort(error)),
    failed: failure.signal,
  };
}

async function outcomeOf({ run }: OwnTool, given: object): Promise<object> {
  try {
    const result = (await run(given)) ?? null;
    const isJson = JSON.stringify(result) !== undefined;
    return isJson ? { result } : { error: `The result is no JSON: it is a ${typeof result}.` };
  } catch (error) {
    // The service takes no half of a pair of surrogates.
    return { error: new TextDecoder().decode(new TextEncoder().encode(String(error))) };
  }
}

/** Why a result cannot be an answer; undefined for other errors. */
function whyUnfit(error: unknown): string | undefined {
  if (error instanceof TooLargeError) return "The result is larger than an answer may be.";
  const isOfClient = error instanceof AirlockError && error.constructor === AirlockError;
  return isOfClient ? `The result is no JSON: ${error.message}` : undefined;
}

/** A function of this program that the code of a job can call. */
export interface OwnTool extends Tool {
  /** Gets the arguments by name; the code gets what it returns or resolves to, or the error that it throws. */
  // oxlint-disable-next-line typescript/no-explicit-any -- the schema in `parameters` says what they are
  readonly run: (given: any) => unknown;
}

/** What a request says of them. */
function describe(tools: readonly OwnTool[]): Tool[] {
  return tools.map(({ run: _run, ...tool }) => tool);
}

/** The state of batches, by `batch_id`. `list` has their jobs. */
export type Batches = Readonly<ReturnType<typeof batches>>;

export function batches(ask: Ask) {
  return {
    /** How many of its jobs have each status. */
    get: async (batchId: string, options?: CallOptions): Promise<Batch> =>
      ask(pathOf("batches", batchId), {}, options),
    /** Cancels the jobs of a batch that have not ended. */
    cancel: async (batchId: string, options?: CallOptions): Promise<Batch> =>
      ask(`${pathOf("batches", batchId)}/cancel`, { method: "POST" }, options),
  };
}

/** Asynchronous jobs that failed. */
export type DeadLetters = Readonly<ReturnType<typeof deadLetters>>;

export function deadLetters(ask: Ask) {
  return {
    /** The newest first. */
    list: (
      filters: { error_type?: ExecutionErrorType; limit?: number } = {},
      options?: CallOptions,
    ): AsyncGenerator<DeadLetter, void> =>
      pages(ask, "/dlq", { ...filters }, ({ id }) => id, options),
    stats: (options?: CallOptions): Promise<DeadLetterStats> => ask("/dlq/stats", {}, options),
    /** Removes an entry; the job's record stays. */
    delete: async (id: number, options?: CallOptions): Promise<void> => {
      await ask(`/dlq/${id}`, { method: "DELETE" }, options);
    },
  };
}
