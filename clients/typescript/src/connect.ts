import { bindApi, type Api } from "./api.ts";
import { artifacts, type Artifacts } from "./artifacts.ts";
import { checkKey, checkUrl } from "./check-options.ts";
import { files, type Files } from "./files.ts";
import type { JobStatus, SubmittedBatch } from "./generated.ts";
import { jobs, type Job, type Jobs } from "./jobs.ts";
import { stream, type Stream } from "./stream.ts";
import { transport, type CallOptions, type ConnectOptions } from "./transport.ts";

export interface Airlock extends Jobs {
  /** Address of the service, without a slash at its end. */
  readonly url: string;
  /** Asks a job to end. */
  readonly cancel: (jobId: string, options?: CallOptions) => Promise<JobStatus>;
  /** Queues up to 1,000 jobs in one request. Each has its own answer, in its place. */
  readonly batch: (
    jobs: readonly Job[],
    options?: CallOptions & { atomic?: boolean },
  ) => Promise<SubmittedBatch>;
  readonly stream: Stream;
  readonly files: Files;
  readonly artifacts: Artifacts;
  /** Every operation of the service by its name in the OpenAPI document. */
  readonly api: Api;
  /** Any request: the answer's headers are there, the body is the caller's to read. */
  readonly request: (path: string, init?: RequestInit, options?: CallOptions) => Promise<Response>;
}

/** A client of one service. It keeps no connection: there is nothing to close. */
export function connect(options: ConnectOptions): Airlock {
  checkKey(options.key);
  const way = transport({ ...options, url: checkUrl(options.url) });
  const api = bindApi(way);
  return {
    url: way.url,
    api,
    ...jobs(api),
    cancel: (id, call) => api.cancelJob({ id }, call),
    batch: (list, { atomic = false, ...call } = {}) => {
      const requests = list.map((job) => (typeof job === "string" ? { code: job } : job));
      return api.executeBatch({ batchRequest: { jobs: requests, atomic } }, call);
    },
    stream: stream(way, options.retries),
    files: files(api, way),
    artifacts: artifacts(api, way),
    request: way.open,
  };
}
