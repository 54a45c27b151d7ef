import type {
  ApiKey,
  AsyncSubmitRequest,
  AuditAction,
  AuditPage,
  Build,
  DeadLetterDeleted,
  DeadLetterPage,
  DeadLetterStats,
  DerivedJob,
  ExecutionRecord,
  ForkRequest,
  Health,
  HostList,
  Invitation,
  JobStatus,
  JobType,
  JoinedHost,
  KeyRequest,
  NewApiKey,
  PoolAgent,
  PoolHistory,
  PoolStats,
  Scope,
  Session,
  SubmittedJob,
  Tenant,
  TenantLimits,
  UploadedFile,
  Usage,
  WebhookDelivery,
  WebhookDeliveryPage,
} from "../../typescript/src/generated.ts";
import { formatCount } from "../model/numbers.ts";
import { api, files, request, tenant } from "./client.ts";

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
const listed =
  "status,job_type,created_at,started_at,ended_at,duration_ms,error,relationship,metadata,attempts,run_at";

/** Items on a page of a list. */
export const pageSize = 50;

export interface Page<T> {
  items: T[];
  has_more: boolean;
}

/** Filters of the list; the names are those of the interface. */
const filterNames = [
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

export type { Session };

/** A call as its session lists it. */
export type ListedCall = Listed & Pick<ExecutionRecord, "call" | "context">;

export function listSessions(query: URLSearchParams, signal: AbortSignal): Promise<Page<Session>> {
  const status = query.get("status") as Session["status"] | null;
  const before = query.get("before");
  return api.listSessions(
    { limit: pageSize, ...(status && { status }), ...(before && { before }) },
    { signal },
  );
}

export const getSession = (id: string, signal?: AbortSignal): Promise<Session> =>
  api.getSession({ id }, { signal });

/** Does not wait until it is ready: its page shows what it waits for. */
export const createSession = (jobType: string): Promise<Session> =>
  api.createSession({ sessionRequest: { job_type: jobType, wait: 0 } });

export const runCell = (id: string, code: string): Promise<unknown> =>
  api.executeInSessionAsync({ id, callRequest: { code } });

export const restart = (id: string): Promise<unknown> =>
  api.executeInSessionAsync({ id, callRequest: { restart: true } });

export const interrupt = (id: string): Promise<unknown> => api.interruptSession({ id });

export const endSession = (id: string): Promise<unknown> => api.deleteSession({ id });

/** The newest calls of a session. */
export function listCalls(id: string, signal: AbortSignal): Promise<Page<ListedCall>> {
  const query = new URLSearchParams({ session_id: id });
  return listExecutions(query, pageSize, signal, `${listed},call,context`);
}

const endings: Record<NonNullable<Session["reason"]>, string> = {
  deleted: "ended by a client",
  idle: "no call for its idle time",
  lifetime: "its lifetime was over",
  agent_lost: "its agent was lost",
  agent_stopped: "its agent was stopped",
  out_of_memory: "out of memory",
  engine_lost: "its sandbox broke",
  start_failed: "no interpreter could be started",
};

/** The word for its state: one that takes calls is busy while a call runs. */
export const stateOf = ({ status, busy }: Session): string =>
  status === "ready" && busy ? "busy" : status;

/** Why it waits, or has ended. */
export function whyOf({ message, reason, error }: Session): string | undefined {
  if (reason === null) return message;
  return error ? `${endings[reason]}: ${error.message}` : endings[reason];
}

export type { ApiKey, KeyRequest, NewApiKey, Scope, Tenant, TenantLimits, Usage };
export type AuditEntry = AuditPage["items"][number];

export const getUsage = (signal: AbortSignal): Promise<Usage> => api.getUsage({ signal });

export const listTenants = async (signal: AbortSignal): Promise<Tenant[]> =>
  (await api.listTenants({ signal })).tenants;

export const setLimits = (name: string, tenantLimits: TenantLimits): Promise<Tenant> =>
  api.setTenantLimits({ name, tenantLimits });

/** Those of the tenant that is chosen, or of all. */
export async function listKeys(signal: AbortSignal): Promise<ApiKey[]> {
  const chosen = tenant.value === "*" || tenant.value === "" ? {} : { tenant: tenant.value };
  return (await api.listKeys(chosen, { signal })).keys;
}
export const createKey = (keyRequest: KeyRequest): Promise<NewApiKey> =>
  api.createKey({ keyRequest });
export const rotateKey = (id: string, oldValidS: number): Promise<NewApiKey> =>
  api.rotateKey({ id, keyRotation: { old_valid_s: oldValidS } });
export const revokeKey = (id: string): Promise<ApiKey> => api.revokeKey({ id });

export function listAudit(query: URLSearchParams, signal: AbortSignal): Promise<AuditPage> {
  const [action, whose, before] = ["action", "tenant", "before"].map((name) => query.get(name));
  return api.listAudit(
    {
      limit: pageSize,
      ...(action && { action: action as AuditAction }),
      ...(whose && { tenant: whose }),
      ...(before && { before: Number(before) }),
    },
    { signal },
  );
}

export type { JoinedHost, PoolAgent };
export type HistoryPoint = PoolHistory["points"][number];

export const drain = (id: string): Promise<PoolAgent> => api.drainAgent({ id });
export const resume = (id: string): Promise<PoolAgent> => api.resumeAgent({ id });
export const invite = (): Promise<Invitation> => api.inviteHost({ invitationRequest: {} });
export const listHosts = (signal: AbortSignal): Promise<HostList> => api.listHosts({ signal });
export const revoke = (id: string): Promise<JoinedHost> => api.revokeHost({ id });
/** The time that a point of the history covers. */
export const historyStepMinutes = 15;
export const getHistory = (signal: AbortSignal): Promise<PoolHistory> =>
  api.getPoolHistory({ hours: 48, step: historyStepMinutes }, { signal });

export type Delivery = WebhookDelivery;
export const deliveryFilters = ["status", "endpoint", "job_id"] as const;

export function listDeliveries(
  query: URLSearchParams,
  signal: AbortSignal,
): Promise<WebhookDeliveryPage> {
  const [status, endpoint, jobId, before] = [...deliveryFilters, "before"].map((name) =>
    query.get(name),
  );
  return api.listWebhookDeliveries(
    {
      limit: pageSize,
      ...(status && { status: status as Delivery["status"] }),
      ...(endpoint && { endpoint }),
      ...(jobId && { jobId }),
      ...(before && { before: Number(before) }),
    },
    { signal },
  );
}

export const resend = (id: number): Promise<Delivery> => api.resendWebhookDelivery({ id });
