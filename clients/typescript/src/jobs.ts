import type { Api } from "./api.ts";
import { NoAnswerError, WaitTimeoutError } from "./errors.ts";
import type { AsyncSubmitRequest, ExecutionRecord, SubmittedJob } from "./generated.ts";
import type { CallOptions } from "./transport.ts";

/** Python source, or a request with all its fields. */
export type Job = string | AsyncSubmitRequest;

export interface WaitOptions extends CallOptions {
  /**
   * Seconds after which to stop waiting, with a WaitTimeoutError, or a NoAnswerError where the service is silent.
   * The job goes on. Default: never.
   */
  waitS?: number | undefined;
}

export interface Jobs {
  /**
   * Runs code to its end. Code that fails is no error of this call: the record says how it ended.
   * If the signal aborts, the job is cancelled.
   */
  readonly run: (job: Job, options?: WaitOptions) => Promise<ExecutionRecord>;
  /** Queues code. With its own idempotency key, it is safe to repeat, which the client does. */
  readonly submit: (job: Job, options?: CallOptions) => Promise<SubmittedJob>;
  /** The full record of a job, once it has ended. */
  readonly wait: (jobId: string, options?: WaitOptions) => Promise<ExecutionRecord>;
}

/** How much later than asked the service's own answer may come. */
const SLACK_MS = 2000;
/** Shorter than the time that proxies allow for an answer. */
const ROUND_S = 25;

export function jobs(api: Api): Jobs {
  const submit: Jobs["submit"] = async (job, options) => {
    const request = typeof job === "string" ? { code: job } : job;
    // Without `Prefer: wait`, it is never a record.
    return (await api.executeAsync({ asyncSubmitRequest: request }, options)) as SubmittedJob;
  };

  const wait: Jobs["wait"] = async (jobId, { waitS = Infinity, ...options } = {}) => {
    const until = performance.now() + waitS * 1000;
    const { signal: own } = options;
    const silent = Number.isFinite(waitS) ? [AbortSignal.timeout(waitS * 1000 + SLACK_MS)] : [];
    const signal = AbortSignal.any([...(own ? [own] : []), ...silent]);
    for (;;) {
      const leftS = Math.max(0, Math.ceil((until - performance.now()) / 1000));
      const query = { wait: true, timeout: Math.min(ROUND_S, leftS), view: "full" } as const;
      try {
        const answer = await api.getJobResult({ id: jobId, ...query }, { ...options, signal });
        if ("execution_id" in answer) return answer;
      } catch (error) {
        if (silent.some(({ aborted }) => aborted) && !own?.aborted) {
          throw new NoAnswerError(`The service did not answer within ${waitS} s.`);
        }
        if (!(error instanceof WaitTimeoutError) || performance.now() >= until) throw error;
      }
    }
  };

  const run: Jobs["run"] = async (job, options = {}) => {
    const { waitS: _, ...call } = options;
    const { job_id } = await submit(job, call);
    try {
      return await wait(job_id, options);
    } catch (error) {
      // If the job has ended meanwhile, there is nothing to cancel.
      if (options.signal?.aborted) await api.cancelJob({ id: job_id }).catch(() => {});
      throw error;
    }
  };

  return { run, submit, wait };
}
