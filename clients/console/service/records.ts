import type { DeadLetterPage, DeadLetterStats } from "../../../shared/wire/dead-letter.ts";
import type { Build } from "../../../shared/wire/build.ts";
import type { ExecutionRecord, JobStatus } from "../../../shared/wire/execution.ts";
import type { Health, PoolStats } from "../../../shared/wire/health.ts";
import type { JobTypeView } from "../../../shared/wire/job-type.ts";
import type { DerivedJob, SubmittedJob } from "../../../shared/wire/submission.ts";
import { getJson, getText, post, send } from "./call.ts";

export type {
  Build,
  DeadLetterPage,
  DeadLetterStats,
  ExecutionRecord,
  Health,
  JobTypeView,
  PoolStats,
};
export type Status = ExecutionRecord["status"];
export type Artifact = NonNullable<ExecutionRecord["artifacts"]>[number];

/** An execution as lists show it. */
export type Listed = Pick<
  ExecutionRecord,
  | "execution_id"
  | "status"
  | "job_type"
  | "created_at"
  | "started_at"
  | "ended_at"
  | "duration_ms"
  | "error"
  | "relationship"
  | "metadata"
  | "timing"
>;
const listed =
  "status,job_type,created_at,started_at,ended_at,duration_ms,error,relationship,metadata,timing";

export interface Page<T> {
  items: T[];
  has_more: boolean;
}

/** Filters of the list; the names are those of the interface. */
export const filterNames = [
  "status",
  "job_type",
  "metadata",
  "created_after",
  "created_before",
  "parent_execution_id",
  "batch_id",
] as const;

export function listExecutions(
  query: URLSearchParams,
  limit: number,
  signal: AbortSignal,
): Promise<Page<Listed>> {
  const asked = new URLSearchParams({ limit: String(limit), fields: listed });
  for (const name of [...filterNames, "before"]) {
    for (const value of query.getAll(name)) if (value !== "") asked.append(name, value);
  }
  return getJson(`/executions?${asked}`, signal);
}

const job = (id: string): string => `/jobs/${encodeURIComponent(id)}`;

export const getExecution = (id: string, signal?: AbortSignal): Promise<ExecutionRecord> =>
  getJson(`/executions/${encodeURIComponent(id)}?view=full`, signal);

export const getJob = (id: string, signal?: AbortSignal): Promise<JobStatus> =>
  getJson(job(id), signal);

export const artifactAddress = (id: string, name: string): string =>
  `${job(id)}/artifacts/${name.split("/").map(encodeURIComponent).join("/")}`;

export interface Submitted {
  code: string;
  input: string;
}

/** The code and the input of an execution. */
export async function getSubmitted(id: string, signal?: AbortSignal): Promise<Submitted> {
  const [code, input] = await Promise.all(
    ["_code.py", "_input.json"].map((name) => getText(artifactAddress(id, name), signal)),
  );
  return { code: code!, input: input! };
}

export const submit = (body: object): Promise<SubmittedJob> => post("/execute/async", body);
export const fork = (id: string, body: object): Promise<DerivedJob> =>
  post(`${job(id)}/fork`, body);
export const rerun = (id: string): Promise<DerivedJob> => post(`${job(id)}/rerun`);
export const cancel = (id: string): Promise<JobStatus> => post(`${job(id)}/cancel`);

export const listJobTypes = (signal?: AbortSignal): Promise<JobTypeView[]> =>
  getJson("/job-types", signal);
export const getPool = (signal?: AbortSignal): Promise<PoolStats> => getJson("/pool/stats", signal);
export const getHealth = (signal?: AbortSignal): Promise<Health> => getJson("/health", signal);
export const getBuild = (name: string, signal?: AbortSignal): Promise<Build> =>
  getJson(`/job-types/${encodeURIComponent(name)}/build`, signal);
export const startBuild = (name: string): Promise<unknown> =>
  post(`/job-types/${encodeURIComponent(name)}/build`);

export const getDeadLetterStats = (signal?: AbortSignal): Promise<DeadLetterStats> =>
  getJson("/dlq/stats", signal);
export function listDeadLetters(
  query: URLSearchParams,
  signal: AbortSignal,
): Promise<DeadLetterPage> {
  const asked = new URLSearchParams({ limit: "50" });
  for (const name of ["error_type", "before"]) {
    const value = query.get(name);
    if (value) asked.set(name, value);
  }
  return getJson(`/dlq?${asked}`, signal);
}
export const removeDeadLetter = (id: number): Promise<Response> =>
  send(`/dlq/${id}`, { method: "DELETE" });
