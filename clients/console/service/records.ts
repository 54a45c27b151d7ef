import type {
  AsyncSubmitRequest,
  Build,
  DeadLetterDeleted,
  DeadLetterPage,
  DeadLetterStats,
  DerivedJob,
  ExecutionRecord,
  ForkRequest,
  Health,
  JobStatus,
  JobType,
  PoolStats,
  SubmittedJob,
  UploadedFile,
} from "../../typescript/src/generated.ts";
import { formatCount } from "../model/time.ts";
import { api, files, request } from "./client.ts";

export type {
  AsyncSubmitRequest,
  Build,
  DeadLetterPage,
  ExecutionRecord,
  ForkRequest,
  Health,
  JobType,
  PoolStats,
  SubmittedJob,
};
export type Status = ExecutionRecord["status"];
export type Attempt = NonNullable<ExecutionRecord["attempts"]>[number];
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
  | "attempts"
  | "run_at"
  | "tenant"
>;
export const listed =
  "status,job_type,created_at,started_at,ended_at,duration_ms,error,relationship,metadata,attempts,run_at";

/** Items on a page of a list. */
export const pageSize = 50;

export interface Page<T> {
  items: T[];
  has_more: boolean;
}

/** Filters of the list; the names are those of the interface. */
export const filterNames = [
  "status",
  "job_type",
  "metadata",
  "error",
  "created_after",
  "created_before",
  "parent_execution_id",
  "batch_id",
  "session_id",
] as const;

type Filters = Record<(typeof filterNames)[number], string[]>;

/** The filters in the query of an address. `status` and `metadata` may be there several times. */
export const filtersOf = (query: URLSearchParams): Filters =>
  Object.fromEntries(
    filterNames.map((name) => [name, query.getAll(name).filter(Boolean)]),
  ) as Filters;

export async function listExecutions(
  query: URLSearchParams,
  limit: number,
  signal: AbortSignal,
  fields = listed,
): Promise<Page<Listed>> {
  const of = (name: string): string | undefined => query.get(name) || undefined;
  const { status, metadata } = filtersOf(query);
  const asked = {
    status,
    jobType: of("job_type"),
    metadata,
    error: of("error"),
    createdAfter: of("created_after"),
    createdBefore: of("created_before"),
    parentExecutionId: of("parent_execution_id"),
    batchId: of("batch_id"),
    sessionId: of("session_id"),
    before: of("before"),
    offset: query.has("offset") ? Number(query.get("offset")) : undefined,
  };
  const given = Object.entries(asked).filter(([, value]) => value !== undefined && value !== "");
  const page = await api.listExecutions(
    { ...Object.fromEntries(given), limit, fields },
    { signal },
  );
  return page as Page<Listed>;
}

/** All items that the filters find, page by page. */
async function* pagesOf<T>(
  query: URLSearchParams,
  load: (query: URLSearchParams) => Promise<Page<T>>,
  idOf: (item: T) => string | number,
): AsyncGenerator<T[], void> {
  const asked = new URLSearchParams(query);
  asked.delete("before");
  for (;;) {
    const { items, has_more: hasMore } = await load(asked);
    yield items;
    if (!hasMore) return;
    asked.set("before", String(idOf(items.at(-1)!)));
  }
}

export const allExecutions = (query: URLSearchParams, signal: AbortSignal) =>
  pagesOf(
    query,
    (asked) => listExecutions(asked, mostCounted, signal, "status"),
    ({ execution_id: id }) => id,
  );

const mostCounted = 1000;

/** How many executions the filters find, as text. More than 1,000 are not counted. */
export async function countExecutions(query: URLSearchParams, signal: AbortSignal) {
  const asked = new URLSearchParams(query);
  asked.delete("before");
  const { items, has_more: hasMore } = await listExecutions(asked, mostCounted, signal, "status");
  return hasMore ? `more than ${formatCount(items.length)}` : formatCount(items.length);
}

/** The id of the newest execution that ends with this, as lists show ids. */
export async function findByEnd(end: string): Promise<string | undefined> {
  const { items } = await listExecutions(
    new URLSearchParams(),
    mostCounted,
    AbortSignal.timeout(10_000),
    "status",
  );
  return items.find(({ execution_id: id }) => id.endsWith(end.toLowerCase()))?.execution_id;
}

export const getExecution = (id: string, signal?: AbortSignal): Promise<ExecutionRecord> =>
  api.getExecution({ id, view: "all" }, { signal });

export const getJob = (id: string, signal?: AbortSignal): Promise<JobStatus> =>
  api.getJob({ id }, { signal });

/** A file that an execution wrote or, with `isInput`, was given. */
export function openArtifact(
  id: string,
  name: string,
  isInput: boolean,
  signal?: AbortSignal,
): Promise<Response> {
  const steps = ["jobs", id, "artifacts", ...name.split("/")].map(encodeURIComponent);
  return request(`/${steps.join("/")}${isInput ? "?from=input" : ""}`, {}, { signal });
}

/** Uploads a file that an execution was given, for another one. */
export async function copyInput(id: string, name: string): Promise<UploadedFile> {
  const answer = await openArtifact(id, name, true);
  return files.upload(name, await answer.blob());
}

export interface Submitted {
  code: string;
  input: string;
}

/** The code and the input of an execution. */
export async function getSubmitted(id: string, signal?: AbortSignal): Promise<Submitted> {
  const [code, input] = await Promise.all(
    ["_code.py", "_input.json"].map(async (name) =>
      (await openArtifact(id, name, false, signal)).text(),
    ),
  );
  return { code: code!, input: input! };
}

export const submit = async (request: AsyncSubmitRequest): Promise<SubmittedJob> =>
  // Without `Prefer: wait`, the answer is never a record.
  (await api.executeAsync({ asyncSubmitRequest: request })) as SubmittedJob;
export const fork = (id: string, request: ForkRequest): Promise<DerivedJob> =>
  api.forkJob({ id, forkRequest: request });
/** With an idempotency key, the caller repeats the request, so it is not repeated here. */
export const rerun = (id: string, idempotencyKey?: string): Promise<DerivedJob> =>
  idempotencyKey === undefined
    ? api.rerunJob({ id })
    : api.rerunJob({ id, idempotencyKey }, { retries: 0 });
export const cancel = (id: string): Promise<JobStatus> => api.cancelJob({ id });

export const listJobTypes = (signal?: AbortSignal): Promise<JobType[]> =>
  api.listJobTypes({ signal });
export const getPool = (signal?: AbortSignal): Promise<PoolStats> => api.getPoolStats({ signal });
export const getHealth = (signal?: AbortSignal): Promise<Health> => api.getHealth({ signal });
export const getBuild = (name: string, signal?: AbortSignal): Promise<Build> =>
  api.getBuild({ name }, { signal });
export const startBuild = (name: string): Promise<unknown> => api.buildJobType({ name });

export const getDeadLetterStats = (signal?: AbortSignal): Promise<DeadLetterStats> =>
  api.getDeadLetterStats({ signal });
export function listDeadLetters(
  query: URLSearchParams,
  signal?: AbortSignal,
  limit = pageSize,
): Promise<DeadLetterPage> {
  const type = query.get("error_type") as DeadLetterPage["items"][number]["error_type"] | null;
  const before = query.get("before");
  return api.listDeadLetters(
    { limit, ...(type && { errorType: type }), ...(before && { before: Number(before) }) },
    { signal },
  );
}
export const allDeadLetters = (query: URLSearchParams, signal: AbortSignal) =>
  pagesOf(
    query,
    (asked) => listDeadLetters(asked, signal, mostCounted),
    ({ id }) => id,
  );
export const removeDeadLetter = (id: number): Promise<DeadLetterDeleted> =>
  api.deleteDeadLetter({ id });

export const isEnded = (record: Pick<ExecutionRecord, "status"> | undefined): boolean =>
  record !== undefined && record.status !== "queued" && record.status !== "running";
